//! Reads a local directory into a tree of files.
//!
//! Follows symbolic links only inside the repository of the directory, and never to an excluded
//! file. A link therefore cannot add a file from outside the repository.
use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use app_config::{Diagnostic, File, Limits, Tree};

use crate::failure::Failure;

/// Directories that tools generate. They are not uploaded.
const EXCLUDED: [&str; 3] = [".git", ".terraform", "node_modules"];
/// Maximum number of directories to read. Links multiply directories: two links in each of fifteen
/// nested directories make over 30,000 paths.
const MAX_DIRECTORIES: usize = 5_000;
const MAX_DEPTH: usize = 64;
/// Part of the names of Terraform state files. These files may contain secrets and do not belong
/// in a bundle.
const STATE: &str = ".tfstate";

/// Reads the files below `directory`. Fails with the first finding.
pub(crate) fn read(directory: &Path) -> Result<Tree, Failure> {
    let (tree, findings) = survey(directory)?;
    match findings.first() {
        None => Ok(tree),
        Some(finding) => Err(Failure::Usage(format!(
            "cannot upload {}: {}\n  try: {}",
            directory.join(&finding.file).display(),
            finding.message,
            finding.remedy
        ))),
    }
}

/// Reads the files below `directory`. Returns a finding for each entry that cannot be read or
/// uploaded.
pub(crate) fn survey(directory: &Path) -> Result<(Tree, Vec<Diagnostic>), Failure> {
    let canonical_path = canonical(directory)?;
    if !canonical_path.is_dir() {
        return Err(Failure::Usage(format!(
            "cannot read {}: it is not a directory; pass a directory",
            directory.display()
        )));
    }
    let root = repository(&canonical_path);
    let (tree, limits) = (Tree::default(), Limits::default());
    let (canonical_path, findings) = (canonical_path.clone(), Vec::new());
    let mut walk = Walk {
        tree,
        top: canonical_path.clone(),
        root,
        limits,
        bytes: 0,
        directories: 0,
        findings,
    };
    walk.directory(&canonical_path, "", &mut vec![canonical_path.clone()])?;
    Ok((walk.tree, walk.findings))
}

/// Path of a directory relative to the root of its repository, with `/` as separator. Empty for the
/// root.
pub(crate) fn path_in_repository(directory: &Path) -> Result<String, Failure> {
    let canonical_path = canonical(directory)?;
    let relative =
        canonical_path.strip_prefix(repository(&canonical_path)).unwrap_or(Path::new(""));
    let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
    Ok(parts.join("/"))
}

/// Root of the repository of a directory: the nearest ancestor with `.git`, or the directory
/// itself.
pub(crate) fn repository(directory: &Path) -> PathBuf {
    let above = directory.ancestors().find(|d| d.join(".git").exists());
    above.unwrap_or(directory).to_path_buf()
}

fn is_excluded(name: &str) -> bool {
    EXCLUDED.contains(&name) || name.contains(STATE)
}

struct Walk {
    tree: Tree,
    top: PathBuf,
    root: PathBuf,
    limits: Limits,
    bytes: u64,
    /// Number of directories read. A directory counts once per path that leads to it.
    directories: usize,
    findings: Vec<Diagnostic>,
}

impl Walk {
    /// Reads a directory. `above` contains the canonical paths of the directory and its ancestors.
    /// A walk that follows a link to one of these directories would never end.
    fn directory(
        &mut self,
        directory: &Path,
        below: &str,
        above: &mut Vec<PathBuf>,
    ) -> Result<(), Failure> {
        self.directories += 1;
        let entries = match names(directory) {
            Ok(entries) => entries,
            // If the top directory is unreadable, there are no other findings.
            Err(error) if below.is_empty() => return Err(at(directory, &error)),
            Err(error) => {
                self.add_unreadable(below, &error);
                return Ok(());
            }
        };
        for name in entries {
            let path = directory.join(&name);
            let name_text = name.to_string_lossy();
            if is_excluded(&name_text) {
                continue;
            }
            let relative = if below.is_empty() {
                name_text.to_string()
            } else {
                format!("{below}/{name_text}")
            };
            if name.to_str().is_none() {
                self.add_finding(
                    "bad_name",
                    &relative,
                    "the name is not UTF-8",
                    "rename the entry",
                );
                continue;
            }
            let Some(real) = self.resolve(&path, &relative) else { continue };
            let meta = match fs::metadata(&real) {
                Ok(meta) => meta,
                Err(error) => {
                    self.add_unreadable(&relative, &error);
                    continue;
                }
            };
            if meta.is_dir() {
                if above.contains(&real) {
                    let message = "the link leads back to one of its parent directories";
                    self.add_finding("path_escape", &relative, message, "remove the link");
                    continue;
                }
                if self.is_full(above.len(), &relative) {
                    return Ok(());
                }
                above.push(real.clone());
                self.directory(&real, &relative, above)?;
                above.pop();
            } else if meta.is_file() {
                self.file(&path, &relative, &meta)?;
            } else {
                let message = "this is neither a file nor a directory";
                self.add_finding("malformed_file", &relative, message, "remove this entry");
            }
        }
        Ok(())
    }

    /// Returns `true` if another directory would exceed a limit. Reports too many directories only
    /// once.
    fn is_full(&mut self, depth: usize, relative: &str) -> bool {
        let message = if self.directories > MAX_DIRECTORIES {
            return true;
        } else if self.directories == MAX_DIRECTORIES {
            self.directories += 1;
            format!("more than {MAX_DIRECTORIES} directories, including linked ones")
        } else if depth >= MAX_DEPTH {
            format!("directories are nested deeper than {MAX_DEPTH}")
        } else {
            return false;
        };
        self.add_finding(
            "too_much",
            relative,
            &message,
            "remove links to directories, or move files out of the app directory",
        );
        true
    }

    fn add_unreadable(&mut self, relative: &str, error: &io::Error) {
        let message = format!("cannot read this entry: {error}");
        self.add_finding(
            "unreadable",
            relative,
            &message,
            "grant read permission, or remove the entry",
        );
    }

    /// Returns the real path, if it is inside the repository and not excluded. Reports a finding
    /// otherwise.
    fn resolve(&mut self, path: &Path, relative: &str) -> Option<PathBuf> {
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let message = "the target of the link does not exist";
                self.add_finding(
                    "missing_file",
                    relative,
                    message,
                    "remove the link, or create its target",
                );
                return None;
            }
            Err(error) => {
                self.add_unreadable(relative, &error);
                return None;
            }
        };
        // Without a link, only the name matters, and the caller has checked it.
        if real.as_path() == path {
            return Some(real);
        }
        if let Ok(there) = real.strip_prefix(&self.top).or_else(|_| real.strip_prefix(&self.root)) {
            if !there.iter().any(|part| is_excluded(&part.to_string_lossy())) {
                return Some(real);
            }
            let message = format!("the link leads to {}, which is not uploaded", there.display());
            self.add_finding("path_escape", relative, &message, "remove the link");
            return None;
        }
        let message = format!("the link leads out of the repository, to {}", real.display());
        let remedy = format!("copy the target of the link into {}", self.root.display());
        self.add_finding("path_escape", relative, &message, &remedy);
        None
    }

    fn file(&mut self, path: &Path, relative: &str, meta: &fs::Metadata) -> Result<(), Failure> {
        let limits = self.limits;
        let too = |what: String| {
            Err(Failure::Usage(format!(
                "cannot upload {}: {what}; move files out of the directory",
                path.display()
            )))
        };
        if meta.len() > limits.file_bytes {
            let message = format!("the file is larger than {} bytes", limits.file_bytes);
            self.add_finding(
                "too_much",
                relative,
                &message,
                "move the file out of the app directory",
            );
            return Ok(());
        }
        self.bytes += meta.len();
        if self.bytes > limits.archive_bytes {
            return too(format!("the directory is larger than {} bytes", limits.archive_bytes));
        }
        if self.tree.len() >= limits.files {
            return too(format!("the directory has more than {} files", limits.files));
        }
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.add_unreadable(relative, &error);
                return Ok(());
            }
        };
        let executable = meta.permissions().mode() & 0o100 != 0;
        if let Err(error) = self.tree.insert(relative, File { bytes, executable }) {
            self.add_finding("bad_name", relative, &error.to_string(), "rename the file");
        }
        Ok(())
    }

    fn add_finding(&mut self, code: &'static str, relative: &str, message: &str, remedy: &str) {
        let finding = Diagnostic::error(code, message, remedy);
        self.findings.push(finding.at(relative, Default::default()));
    }
}

/// Sorted names of the entries of a directory.
fn names(directory: &Path) -> io::Result<Vec<OsString>> {
    let entries = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name()));
    let mut entries = entries.collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

fn canonical(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|e| at(path, &e))
}

fn at(path: &Path, error: &io::Error) -> Failure {
    Failure::Usage(format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
