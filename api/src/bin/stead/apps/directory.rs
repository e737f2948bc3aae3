//! A directory of this machine as a tree of bytes.
//!
//! Symbolic links are followed, but never out of the repository that the directory is in: what is
//! sent is what a reviewer of that repository has seen.
use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use app_config::{File, Limits, Tree};

use crate::failure::Failure;

/// Directories that tools make and nobody means to send.
const NOT_SENT: [&str; 3] = [".git", ".terraform", "node_modules"];
/// Files with a state in them that belongs to no bundle and may hold secrets.
const STATE: &str = ".tfstate";

/// Everything below `directory`.
pub fn read(directory: &Path) -> Result<Tree, Failure> {
    let top = canonical(directory)?;
    if !top.is_dir() {
        return Err(Failure::Usage(format!("{} is not a directory", directory.display())));
    }
    let root = repository(&top);
    let mut walk = Walk { tree: Tree::default(), root, limits: Limits::default(), bytes: 0 };
    walk.directory(&top, "", &mut vec![top.clone()])?;
    Ok(walk.tree)
}

/// The repository around a directory: the nearest one above it that holds `.git`, or itself.
pub fn repository(directory: &Path) -> PathBuf {
    let above = directory.ancestors().find(|d| d.join(".git").exists());
    above.unwrap_or(directory).to_path_buf()
}

struct Walk {
    tree: Tree,
    root: PathBuf,
    limits: Limits,
    bytes: u64,
}

impl Walk {
    /// `above` holds the real directories on the way here: a link back to one of them has no end.
    fn directory(
        &mut self,
        directory: &Path,
        below: &str,
        above: &mut Vec<PathBuf>,
    ) -> Result<(), Failure> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(directory).map_err(|e| at(directory, &e))? {
            entries.push(entry.map_err(|e| at(directory, &e))?.file_name());
        }
        entries.sort();
        for name in entries {
            let path = directory.join(&name);
            let Some(name) = name.to_str() else {
                return Err(Failure::Usage(format!("{}: the name is not UTF-8", path.display())));
            };
            if NOT_SENT.contains(&name) || name.contains(STATE) {
                continue;
            }
            let inside = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
            let real = self.inside(&path)?;
            let meta = fs::metadata(&real).map_err(|e| at(&path, &e))?;
            if meta.is_dir() {
                if above.contains(&real) {
                    let said = "the link leads back to a directory above it";
                    return Err(Failure::Usage(format!("{}: {said}", path.display())));
                }
                above.push(real.clone());
                self.directory(&real, &inside, above)?;
                above.pop();
            } else if meta.is_file() {
                self.file(&path, &inside, &meta)?;
            } else {
                let said = "neither a file nor a directory";
                return Err(Failure::Usage(format!("{} is {said}", path.display())));
            }
        }
        Ok(())
    }

    /// Where a path really is: inside of the repository, or it is refused.
    fn inside(&self, path: &Path) -> Result<PathBuf, Failure> {
        let real = canonical(path)?;
        if real.starts_with(&self.root) {
            return Ok(real);
        }
        Err(Failure::Usage(format!(
            "{} leads out of the repository, to {}\n  try: copy the file into {}",
            path.display(),
            real.display(),
            self.root.display()
        )))
    }

    fn file(&mut self, path: &Path, inside: &str, meta: &fs::Metadata) -> Result<(), Failure> {
        let limits = self.limits;
        let too = |what: String| Err(Failure::Usage(format!("{}: {what}", path.display())));
        if meta.len() > limits.file_bytes {
            return too(format!("the file is larger than {} bytes", limits.file_bytes));
        }
        self.bytes += meta.len();
        if self.bytes > limits.archive_bytes {
            return too(format!("the directory is larger than {} bytes", limits.archive_bytes));
        }
        if self.tree.len() >= limits.files {
            return too(format!("the directory has more than {} files", limits.files));
        }
        let bytes = fs::read(path).map_err(|e| at(path, &e))?;
        let executable = meta.permissions().mode() & 0o100 != 0;
        let file = File { bytes, executable };
        self.tree.insert(inside, file).map_err(|e| Failure::Usage(e.to_string()))
    }
}

fn canonical(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|e| at(path, &e))
}

fn at(path: &Path, error: &io::Error) -> Failure {
    Failure::Usage(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_inside_the_repository_and_refused_outside() {
        let dir = tempfile::tempdir().unwrap();
        let repo = dir.path().join("repo");
        let app = repo.join("apps/shop");
        fs::create_dir_all(&app).unwrap();
        fs::create_dir_all(repo.join(".git")).unwrap();
        fs::write(repo.join("shared.toml"), "a = 1").unwrap();
        fs::write(dir.path().join("secret"), "x").unwrap();
        symlink("../../shared.toml", app.join("linked.toml")).unwrap();
        let tree = read(&app).unwrap();
        assert_eq!(tree.text("linked.toml"), Some("a = 1"));

        symlink(dir.path().join("secret"), app.join("out")).unwrap();
        let refused = read(&app).unwrap_err().text();
        assert!(refused.contains("leads out of the repository"), "{refused}");
    }

    #[test]
    fn a_link_without_end_is_refused_and_state_is_not_sent() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("module/.terraform")).unwrap();
        fs::write(dir.path().join("module/terraform.tfstate"), "{}").unwrap();
        fs::write(dir.path().join("module/main.tf"), "").unwrap();
        let tree = read(dir.path()).unwrap();
        assert_eq!(tree.iter().map(|(p, _)| p).collect::<Vec<_>>(), ["module/main.tf"]);

        symlink("..", dir.path().join("module/up")).unwrap();
        let refused = read(dir.path()).unwrap_err().text();
        assert!(refused.contains("leads back"), "{refused}");
    }
}
