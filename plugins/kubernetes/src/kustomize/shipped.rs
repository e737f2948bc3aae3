//! Objects of a kustomization without templates, which the build adds to the artifact. So the host of
//! the customer needs no tool for it.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};

use super::{below, parse};
use crate::{
    failure::{Failure, IoContext, Outcome},
    manifest::Desired,
    settings::Kustomize,
};

/// File of the artifact with the objects.
const FILE: &str = ".stead-kustomization.json";

/// Output of the tool, with the settings that it depends on.
#[derive(Serialize, Deserialize)]
struct Shipped {
    path: String,
    patches: Vec<String>,
    enable_helm: bool,
    output: String,
}

/// Adds the output of the tool to the source, which becomes the artifact.
pub fn write(source_dir: &Path, kustomize: &Kustomize, output: String) -> Outcome<()> {
    let Kustomize { path, patches, enable_helm, files: _ } = kustomize;
    let (path, patches, enable_helm) = (path.clone(), patches.clone(), *enable_helm);
    let shipped = Shipped { path, patches, enable_helm, output };
    let text = serde_json::to_string(&shipped)
        .map_err(|error| Failure::failed(format!("cannot write {FILE}: {error}")))?;
    fs::write(source_dir.join(FILE), text).context(|| format!("write {FILE}"))
}

/// Removes the file of an earlier build from the source.
pub fn remove(source_dir: &Path) -> Outcome<()> {
    match fs::remove_file(source_dir.join(FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).context(|| format!("remove {FILE}"))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns the objects that the build added. `None` if it added none, or if it had other settings or
/// other files than the install.
pub fn read(source_dir: &Path, kustomize: &Kustomize) -> Outcome<Option<Vec<Desired>>> {
    let text = match fs::read_to_string(source_dir.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.context(|| format!("read {FILE}"))?,
    };
    let shipped: Shipped = serde_json::from_str(&text)
        .map_err(|error| Failure::refused(format!("invalid {FILE} in the artifact: {error}")))?;
    let has_same_settings = shipped.path == kustomize.path
        && shipped.patches == kustomize.patches
        && shipped.enable_helm == kustomize.enable_helm;
    if !has_same_settings {
        return Ok(None);
    }
    for (path, rendered) in &kustomize.files {
        let source = fs::read(below(source_dir, path)?);
        if !source.is_ok_and(|source| source == rendered.as_bytes()) {
            return Ok(None);
        }
    }
    parse(&shipped.output).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_objects_are_used_only_for_the_same_settings_and_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.yaml"), "a: 1\n").unwrap();
        let kustomize = |path: &str, text: &str| Kustomize {
            path: path.into(),
            patches: vec![],
            enable_helm: false,
            files: [("a.yaml".to_owned(), text.to_owned())].into(),
        };
        let same = kustomize(".", "a: 1\n");
        assert!(read(dir.path(), &same).unwrap().is_none());
        let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}\n";
        write(dir.path(), &same, object.into()).unwrap();
        assert_eq!(read(dir.path(), &same).unwrap().unwrap().len(), 1);
        for other in [kustomize("base", "a: 1\n"), kustomize(".", "a: rendered\n")] {
            assert!(read(dir.path(), &other).unwrap().is_none());
        }
        remove(dir.path()).unwrap();
        remove(dir.path()).unwrap();
        assert!(read(dir.path(), &same).unwrap().is_none());
    }
}
