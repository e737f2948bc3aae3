//! Kustomizations, built with `kustomize` or `kubectl` from the runner's host.

use std::{
    fs, io,
    path::{Component as Part, Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{
    io::AsyncReadExt,
    process::{Child, Command},
};

use crate::{
    failure::{Failure, IoContext, Outcome},
    manifest::{self, Desired},
    report,
    settings::{Component, Kustomize},
};

const TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum size of a build's output in bytes.
const OUTPUT_LIMIT: usize = 32 << 20;
/// Maximum length of a tool's error output in a message, in bytes.
const ERROR_LIMIT: u64 = 16 << 10;
/// File that adds the patches of the component to its kustomization.
const FILE: &str = "kustomization.yaml";

/// Builds a kustomization from a copy of the source in which rendered files replace templates.
pub async fn build(component: &Component, kustomize: &Kustomize) -> Outcome<Vec<Desired>> {
    report::phase("kustomize");
    let root = component.work_dir.join("kustomize");
    copy(&component.source_dir, &root.join("source"))
        .context(|| "copy the source of the kustomization".into())?;
    for (path, text) in &kustomize.files {
        let file = below(&root.join("source"), path)?;
        if let Some(dir) = file.parent() {
            fs::create_dir_all(dir).context(|| format!("create the directory of {path}"))?;
        }
        fs::write(&file, text).context(|| format!("write {path}"))?;
    }
    let target = below(&root.join("source"), &kustomize.path)?;
    if !target.is_dir() {
        return Err(Failure::refused(format!(
            "the component's source has no directory {}; correct kustomize.path",
            kustomize.path
        )));
    }
    let directory = match kustomize.patches.is_empty() {
        true => target,
        false => patched(&root, &kustomize.path, &kustomize.patches)?,
    };
    let output = run(&directory, kustomize.enable_helm).await?;
    manifest::parse(&output, "kustomization")
}

/// Writes an overlay that applies the patches to the component's kustomization.
fn patched(root: &Path, path: &str, patches: &[String]) -> Outcome<PathBuf> {
    let relative = Path::new(path).components().filter(|part| matches!(part, Part::Normal(_)));
    let resource = Path::new("source").join(relative.collect::<PathBuf>());
    let mut entries = vec![];
    for patch in patches {
        let file = below(&root.join("source"), patch)?;
        let is_file = !patch.contains('\n') && file.is_file();
        entries.push(match is_file {
            true => serde_json::json!({ "path": Path::new("source").join(patch) }),
            false => serde_json::json!({ "patch": patch }),
        });
    }
    let overlay = serde_json::json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [resource],
        "patches": entries,
    });
    fs::write(root.join(FILE), overlay.to_string()).context(|| format!("write {FILE}"))?;
    Ok(root.to_owned())
}

/// Joins a path to its root. Refuses a path outside the root.
fn below(root: &Path, path: &str) -> Outcome<PathBuf> {
    let is_inner = |part| matches!(part, Part::Normal(_) | Part::CurDir);
    match Path::new(path).components().all(is_inner) {
        true => Ok(root.join(path)),
        false => Err(Failure::refused(format!(
            "the path {path:?} leaves the component's source; use a path inside it"
        ))),
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Runs `kustomize build`, or `kubectl kustomize` if only kubectl is installed.
async fn run(directory: &Path, enable_helm: bool) -> Outcome<String> {
    for (program, verb) in [("kustomize", "build"), ("kubectl", "kustomize")] {
        let mut command = Command::new(program);
        command.arg(verb).arg(directory).stdin(Stdio::null()).kill_on_drop(true);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if enable_helm {
            command.arg("--enable-helm");
        }
        let child = match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            child => child.context(|| format!("start {program}"))?,
        };
        let finished = tokio::time::timeout(TIMEOUT, finish(child)).await;
        let (succeeded, output, errors) = finished
            .map_err(|_| {
                let seconds = TIMEOUT.as_secs();
                Failure::failed(format!("{program} did not finish within {seconds} s"))
            })?
            .context(|| format!("read the output of {program}"))?;
        let refuse = |why: &str| {
            Failure::refused(format!("cannot build the kustomization: {program}: {why}"))
        };
        if output.len() > OUTPUT_LIMIT {
            return Err(refuse(&format!("its output is larger than {OUTPUT_LIMIT} bytes")));
        }
        if !succeeded {
            return Err(refuse(String::from_utf8_lossy(&errors).trim()));
        }
        return String::from_utf8(output).map_err(|_| refuse("its output is not UTF-8"));
    }
    Err(Failure::tool_missing(
        "cannot build the kustomization: neither kustomize nor kubectl is installed; install one \
         of them on the runner's host",
    ))
}

/// Reads the output of a program up to its limits, and returns whether the program succeeded. Kills
/// a program whose standard output exceeds its limit.
async fn finish(mut child: Child) -> io::Result<(bool, Vec<u8>, Vec<u8>)> {
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let output = async {
        let mut bytes = vec![];
        if let Some(pipe) = output {
            pipe.take(OUTPUT_LIMIT as u64 + 1).read_to_end(&mut bytes).await?;
        }
        io::Result::Ok(bytes)
    };
    let errors = async {
        let mut bytes = vec![];
        if let Some(mut pipe) = errors {
            (&mut pipe).take(ERROR_LIMIT).read_to_end(&mut bytes).await?;
            tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
        }
        io::Result::Ok(bytes)
    };
    let (output, errors) = tokio::try_join!(output, errors)?;
    let succeeded = output.len() <= OUTPUT_LIMIT && child.wait().await?.success();
    Ok((succeeded, output, errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_source() {
        let root = Path::new("/work/source");
        assert_eq!(below(root, "./base/x").unwrap(), Path::new("/work/source/./base/x"));
        assert!(below(root, "../x").is_err());
        assert!(below(root, "/etc").is_err());
    }
}
