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

mod references;
pub mod shipped;

use crate::{
    failure::{Failure, IoContext, Outcome},
    manifest::{self, Desired},
    report,
    settings::Kustomize,
};

const TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum size of a build's output in bytes.
const OUTPUT_LIMIT: usize = 32 << 20;
/// Maximum length of a tool's error output in a message, in bytes.
const ERROR_LIMIT: u64 = 16 << 10;
/// Tools that build kustomizations, with their verbs.
const TOOLS: [(&str, &str); 2] = [("kustomize", "build"), ("kubectl", "kustomize")];
/// File that adds the patches of the component to its kustomization.
const FILE: &str = "kustomization.yaml";

/// Builds a kustomization from a copy of the source in which rendered files replace templates.
pub async fn build(
    source_dir: &Path,
    work_dir: &Path,
    kustomize: &Kustomize,
) -> Outcome<Vec<Desired>> {
    parse(&output(source_dir, work_dir, kustomize).await?)
}

/// Parses the output of a tool.
pub fn parse(output: &str) -> Outcome<Vec<Desired>> {
    manifest::parse(output, "kustomization")
}

/// Returns the output of the tool for a kustomization.
pub async fn output(source_dir: &Path, work_dir: &Path, kustomize: &Kustomize) -> Outcome<String> {
    report::phase("kustomize");
    let root = work_dir.join("kustomize");
    copy(source_dir, source_dir, &root.join("source"))?;
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
    references::check(&root.join("source"), kustomize.enable_helm)?;
    let directory = match kustomize.patches.is_empty() {
        true => target,
        false => patched(&root, &kustomize.path, &kustomize.patches)?,
    };
    run(&directory, kustomize.enable_helm).await
}

/// Writes an overlay that applies the patches to the component's kustomization.
fn patched(root: &Path, path: &str, patches: &[String]) -> Outcome<PathBuf> {
    let relative = Path::new(path).components().filter(|part| matches!(part, Part::Normal(_)));
    let resource = Path::new("source").join(relative.collect::<PathBuf>());
    let mut entries = vec![];
    for patch in patches {
        // A text with several lines is a patch, and a single line is the path of one.
        if patch.trim_end().contains('\n') {
            entries.push(serde_json::json!({ "patch": patch }));
            continue;
        }
        let path = patch.trim_end();
        if !below(&root.join("source"), path)?.is_file() {
            return Err(Failure::refused(format!(
                "the component's source has no patch {path}; correct kustomize.patches"
            )));
        }
        entries.push(serde_json::json!({ "path": Path::new("source").join(path) }));
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

/// Copies a directory of the source `root`. A link becomes a copy of its target, which must be
/// inside the source.
fn copy(root: &Path, from: &Path, to: &Path) -> Outcome<()> {
    let read = || format!("read {} of the component's source", from.display());
    fs::create_dir_all(to).context(|| format!("create {}", to.display()))?;
    for entry in fs::read_dir(from).context(read)? {
        let entry = entry.context(read)?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().context(read)?;
        if kind.is_symlink() {
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            let refuse = |why: &str| {
                Failure::refused(format!("the link {name} of the component's source {why}"))
            };
            let inner = root.canonicalize().context(read)?;
            let linked = path.canonicalize();
            let linked = linked.map_err(|_| refuse("has no target; correct or remove it"))?;
            if !linked.starts_with(&inner) {
                return Err(refuse("points outside the source; replace it with a copy"));
            }
            if !linked.is_file() {
                return Err(refuse("does not point to a file; replace it with a copy"));
            }
            fs::copy(linked, target).context(|| format!("copy {name}"))?;
        } else if kind.is_dir() {
            copy(root, &path, &target)?;
        } else if kind.is_file() {
            fs::copy(&path, target).context(|| format!("copy {}", path.display()))?;
        }
    }
    Ok(())
}

/// Finds a tool for [`build`] in the `PATH`.
pub fn find_tool() -> Outcome<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories = std::env::split_paths(&path);
    match directories.any(|dir| TOOLS.iter().any(|(program, _)| dir.join(program).is_file())) {
        true => Ok(()),
        false => Err(tool_missing()),
    }
}

fn tool_missing() -> Failure {
    Failure::tool_missing(
        "cannot build the kustomization: neither kustomize nor kubectl is installed; install one \
         of them on the runner's host",
    )
}

/// Runs `kustomize build`, or `kubectl kustomize` if only kubectl is installed.
async fn run(directory: &Path, enable_helm: bool) -> Outcome<String> {
    for (program, verb) in TOOLS {
        let mut command = Command::new(program);
        command.arg(verb).arg(directory).stdin(Stdio::null()).kill_on_drop(true);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        isolate(&mut command, directory);
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
                Failure::failed(format!(
                    "cannot build the kustomization: {program} did not finish within {seconds} s; \
                     reduce its inputs"
                ))
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
    Err(tool_missing())
}

/// Sets the environment of a tool. The tool reads it: a line without a value in an `envs` file of a
/// kustomization takes the value of the variable, so a credential of the job could become part of an
/// object.
fn isolate(command: &mut Command, home: &Path) {
    command.env_clear().env("HOME", home).env("LANG", "C.UTF-8");
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    // The source is complete. A fetch that `references` misses must fail.
    command.env("GIT_ALLOW_PROTOCOL", "none");
    for variable in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        command.env(variable, "http://127.0.0.1:9");
    }
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

    #[tokio::test]
    async fn a_tool_gets_no_variable_of_the_job() {
        let mut command = Command::new("env");
        isolate(&mut command, Path::new("/job"));
        let output = String::from_utf8(command.output().await.unwrap().stdout).unwrap();
        assert!(output.contains("HOME=/job\n") && output.contains("PATH="), "{output}");
        // The test itself has variables of cargo.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some() && !output.contains("CARGO"));
    }

    #[test]
    fn links_stay_inside_the_source() {
        let dir = tempfile::tempdir().unwrap();
        let (source, target) = (dir.path().join("source"), dir.path().join("copy"));
        fs::create_dir_all(source.join("base")).unwrap();
        fs::write(source.join("shared.yaml"), "shared").unwrap();
        let link = source.join("base/linked.yaml");
        std::os::unix::fs::symlink("../shared.yaml", &link).unwrap();
        copy(&source, &source, &target).unwrap();
        assert_eq!(fs::read_to_string(target.join("base/linked.yaml")).unwrap(), "shared");
        for (outside, part) in
            [("../../outside", "has no target"), ("/etc/hostname", "points outside")]
        {
            fs::remove_file(&link).unwrap();
            std::os::unix::fs::symlink(outside, &link).unwrap();
            let message = copy(&source, &source, &target).unwrap_err().message;
            assert!(message.contains("base/linked.yaml") && message.contains(part), "{message}");
        }
    }

    #[test]
    fn single_line_is_a_file_and_several_lines_are_a_patch() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("source")).unwrap();
        fs::write(dir.path().join("source/p.yaml"), "").unwrap();
        let patches = |patch: &str| patched(dir.path(), "base", &[patch.to_owned()]);
        assert!(patches("p.yaml").is_ok());
        assert!(patches("- op: remove\n  path: /a/../b\n").is_ok());
        let message = patches("mistyped.yaml").unwrap_err().message;
        assert!(message.contains("has no patch mistyped.yaml"), "{message}");
    }

    #[test]
    fn paths_stay_below_the_source() {
        let root = Path::new("/work/source");
        assert_eq!(below(root, "./base/x").unwrap(), Path::new("/work/source/./base/x"));
        assert!(below(root, "../x").is_err());
        assert!(below(root, "/etc").is_err());
    }
}
