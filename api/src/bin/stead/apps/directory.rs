//! A directory of this machine as a tree of bytes.
//!
//! Symbolic links are followed, but never out of the repository that the directory is in, nor to
//! what is not sent under its own name: what is sent is what a reviewer of that repository has seen.
use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use app_config::{Diagnostic, File, Limits, Tree};

use crate::failure::Failure;

/// Directories that tools make and nobody means to send.
const NOT_SENT: [&str; 3] = [".git", ".terraform", "node_modules"];
/// Files with a state in them that belongs to no bundle and may hold secrets.
const STATE: &str = ".tfstate";

/// Everything below `directory`.
pub fn read(directory: &Path) -> Result<Tree, Failure> {
    let (tree, odd) = survey(directory)?;
    match odd.first() {
        None => Ok(tree),
        Some(finding) => Err(Failure::Usage(format!(
            "{}: {}\n  try: {}",
            directory.join(&finding.file).display(),
            finding.message,
            finding.remedy
        ))),
    }
}

/// Everything below `directory` that can be read, and everything that cannot.
pub fn survey(directory: &Path) -> Result<(Tree, Vec<Diagnostic>), Failure> {
    let top = canonical(directory)?;
    if !top.is_dir() {
        return Err(Failure::Usage(format!("{} is not a directory", directory.display())));
    }
    let root = repository(&top);
    let (tree, limits) = (Tree::default(), Limits::default());
    let mut walk = Walk { tree, top: top.clone(), root, limits, bytes: 0, odd: Vec::new() };
    walk.directory(&top, "", &mut vec![top.clone()])?;
    Ok((walk.tree, walk.odd))
}

/// The repository around a directory: the nearest one above it that holds `.git`, or itself.
pub fn repository(directory: &Path) -> PathBuf {
    let above = directory.ancestors().find(|d| d.join(".git").exists());
    above.unwrap_or(directory).to_path_buf()
}

fn is_not_sent(name: &str) -> bool {
    NOT_SENT.contains(&name) || name.contains(STATE)
}

struct Walk {
    tree: Tree,
    top: PathBuf,
    root: PathBuf,
    limits: Limits,
    bytes: u64,
    odd: Vec<Diagnostic>,
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
            if is_not_sent(name) {
                continue;
            }
            let inside = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
            let Some(real) = self.inside(&path, &inside) else { continue };
            let meta = fs::metadata(&real).map_err(|e| at(&path, &e))?;
            if meta.is_dir() {
                if above.contains(&real) {
                    let said = "the link leads back to a directory above it";
                    self.say("path_escape", &inside, said, "remove the link");
                    continue;
                }
                above.push(real.clone());
                self.directory(&real, &inside, above)?;
                above.pop();
            } else if meta.is_file() {
                self.file(&path, &inside, &meta)?;
            } else {
                let said = "this is neither a file nor a directory";
                self.say("malformed_file", &inside, said, "remove it");
            }
        }
        Ok(())
    }

    /// Where a path really is, when that is inside of the repository and may be sent.
    fn inside(&mut self, path: &Path, inside: &str) -> Option<PathBuf> {
        let Ok(real) = path.canonicalize() else {
            self.say("missing_file", inside, "the link leads to nothing", "remove or correct it");
            return None;
        };
        // Of what is no link the name has been looked at. The top itself may be anywhere.
        if real.as_path() == path {
            return Some(real);
        }
        if let Ok(there) = real.strip_prefix(&self.top).or_else(|_| real.strip_prefix(&self.root)) {
            if !there.iter().any(|part| is_not_sent(&part.to_string_lossy())) {
                return Some(real);
            }
            let said = format!("the link leads to {}, which is not sent", there.display());
            self.say("path_escape", inside, &said, "remove the link");
            return None;
        }
        let said = format!("the link leads out of the repository, to {}", real.display());
        let remedy = format!("copy what it leads to into {}", self.root.display());
        self.say("path_escape", inside, &said, &remedy);
        None
    }

    fn file(&mut self, path: &Path, inside: &str, meta: &fs::Metadata) -> Result<(), Failure> {
        let limits = self.limits;
        let too = |what: String| Err(Failure::Usage(format!("{}: {what}", path.display())));
        if meta.len() > limits.file_bytes {
            let said = format!("the file is larger than {} bytes", limits.file_bytes);
            self.say("too_much", inside, &said, "keep it out of the app directory");
            return Ok(());
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
        if let Err(error) = self.tree.insert(inside, File { bytes, executable }) {
            self.say("bad_name", inside, &error.to_string(), "rename the file");
        }
        Ok(())
    }

    fn say(&mut self, code: &'static str, inside: &str, said: &str, remedy: &str) {
        let finding = Diagnostic::error(code, said, remedy);
        self.odd.push(finding.at(inside, Default::default()));
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
        symlink("nowhere", app.join("dangling")).unwrap();
        let refused = read(&app).unwrap_err().text();
        assert!(refused.contains("the link leads to nothing"), "{refused}");
        let (tree, odd) = survey(&app).unwrap();
        assert_eq!(tree.len(), 1);
        let odd: Vec<_> = odd.iter().map(|finding| (finding.code, finding.file.as_str())).collect();
        assert_eq!(odd, [("missing_file", "dangling"), ("path_escape", "out")]);
    }

    /// `.git/config` may hold the token of whoever runs this.
    #[test]
    fn a_link_to_what_is_not_sent_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let app = dir.path().join(".terraform/app");
        for made in [".git", ".terraform/app/.terraform/modules", ".terraform/app/shared"] {
            fs::create_dir_all(dir.path().join(made)).unwrap();
        }
        fs::write(dir.path().join(".git/config"), "token").unwrap();
        fs::write(app.join("terraform.tfstate.backup"), "{}").unwrap();
        fs::write(app.join("shared/a.txt"), "a").unwrap();
        symlink("shared/a.txt", app.join("linked.txt")).unwrap();
        symlink("../../.git", app.join("git")).unwrap();
        symlink("../../.git/config", app.join("notes.md")).unwrap();
        symlink(".terraform/modules", app.join("modules")).unwrap();
        symlink("terraform.tfstate.backup", app.join("state.txt")).unwrap();
        let (tree, odd) = survey(&app).unwrap();
        let sent: Vec<_> = tree.iter().map(|(path, _)| path).collect();
        assert_eq!(sent, ["linked.txt", "shared/a.txt"]);
        let odd: Vec<_> = odd.iter().map(|finding| (finding.code, finding.file.as_str())).collect();
        let refused = ["git", "modules", "notes.md", "state.txt"];
        assert_eq!(odd, refused.map(|file| ("path_escape", file)));
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
