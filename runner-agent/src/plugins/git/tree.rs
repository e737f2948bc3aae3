//! Files of a commit, as git lists them, and the files that a component needs.
//!
//! The listing contains no content: a partial fetch has the trees of the commit, and fetches only
//! the blobs that a component needs.
use std::collections::{BTreeMap, BTreeSet};

use super::references::Reference;

/// Maximum number of files in a component's artifact.
const MAX_FILES: usize = 50_000;
/// Maximum number of links in the path of one file.
const MAX_LINKS: usize = 32;
/// Maximum number of entries of a commit.
const MAX_ENTRIES: usize = 1_000_000;
/// Maximum number of entries and path segments that the selection of a source visits. Links can
/// reach the same files by exponentially many paths.
const MAX_STEPS: usize = 2_000_000;
/// Directories that tools generate. An artifact does not contain them.
const EXCLUDED: [&str; 3] = [".git", ".terraform", "node_modules"];
/// Part of the names of Terraform state files, which may contain secrets.
const STATE: &str = ".tfstate";

/// Type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File { executable: bool },
    Link,
    Submodule,
}

/// File, link or submodule of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub kind: Kind,
    /// Id of the blob, or of the submodule's commit.
    pub id: String,
    /// Index of the repository that has the blob.
    pub repository: usize,
}

/// Entries of a commit by path, and the targets of its links.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub entries: BTreeMap<String, Entry>,
    /// Targets of the links, by path.
    pub links: BTreeMap<String, String>,
}

/// Reason why a path of the source cannot be packed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathError {
    #[error(
        "{at}: the {kind} {path:?} points outside the repository; copy its target into the repository"
    )]
    Outside { at: String, kind: &'static str, path: String },
    #[error("{at}: the {kind} {path:?} does not exist in the repository; correct the path")]
    Missing { at: String, kind: &'static str, path: String },
    #[error("{at}: the link points to one of its parent directories; remove the link")]
    Loop { at: String },
    #[error("the source has more than {MAX_FILES} files; choose a smaller directory")]
    TooMany,
    #[error(
        "the source has too many links to directories; remove links, or choose a smaller directory"
    )]
    TooManySteps,
}

/// Kind of the entry at a path of the repository.
enum Node {
    Directory(String),
    Entry(String),
    Absent,
}

/// Files that a component needs, by their path in the artifact.
#[derive(Debug, Default)]
pub(super) struct Selection {
    pub files: BTreeMap<String, Entry>,
    /// Paths of required submodules whose files are not in the tree yet.
    pub submodules: BTreeSet<String>,
    /// Number of omitted state files.
    pub skipped: usize,
    /// Number of visited entries and path segments.
    pub steps: usize,
    directories: BTreeSet<String>,
}

impl Selection {
    /// Creates an empty selection that continues the step count of earlier selections.
    pub(super) fn continued(steps: usize) -> Selection {
        Selection { steps, ..Selection::default() }
    }

    fn step(&mut self) -> Result<(), PathError> {
        self.steps += 1;
        if self.steps > MAX_STEPS { Err(PathError::TooManySteps) } else { Ok(()) }
    }
}

impl Tree {
    /// Parses the output of `git ls-tree -r -z`.
    pub(super) fn parse(listing: &[u8], repository: usize) -> Result<Tree, String> {
        let mut tree = Tree::default();
        for line in listing.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
            let malformed = || {
                format!(
                    "unexpected entry {:?} in the output of git ls-tree",
                    String::from_utf8_lossy(line)
                )
            };
            let at = line.iter().position(|byte| *byte == b'\t').ok_or_else(malformed)?;
            let (meta, path) = line.split_at(at);
            let meta = std::str::from_utf8(meta).map_err(|_| malformed())?;
            // Skips a file whose name is not UTF-8, because the component may not need it.
            let Ok(path) = std::str::from_utf8(path.get(1..).unwrap_or_default()) else { continue };
            let mut words = meta.split(' ');
            let (Some(mode), Some(_), Some(id)) = (words.next(), words.next(), words.next()) else {
                return Err(malformed());
            };
            let kind = match mode {
                "100755" => Kind::File { executable: true },
                "120000" => Kind::Link,
                "160000" => Kind::Submodule,
                mode if mode.starts_with("100") => Kind::File { executable: false },
                _ => return Err(malformed()),
            };
            if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
                return Err(malformed());
            }
            if tree.entries.len() >= MAX_ENTRIES {
                return Err(format!("the commit has more than {MAX_ENTRIES} files"));
            }
            tree.entries.insert(path.into(), Entry { kind, id: id.into(), repository });
        }
        Ok(tree)
    }

    /// Replaces a submodule with its files.
    pub(super) fn insert_submodule(&mut self, path: &str, submodule: Tree) {
        self.entries.remove(path);
        for (below, entry) in submodule.entries {
            self.entries.insert(format!("{path}/{below}"), entry);
        }
        for (below, target) in submodule.links {
            self.links.insert(format!("{path}/{below}"), target);
        }
    }

    /// Selects a path that a file of the source references.
    pub(super) fn select_reference(
        &self,
        file: &str,
        reference: &Reference,
        into: &mut Selection,
    ) -> Result<(), PathError> {
        let Reference { line, path, kind, required } = reference;
        let at = || format!("{file}:{line}");
        let outside = || PathError::Outside { at: at(), kind, path: path.clone() };
        let target = join(parent(file), path).ok_or_else(outside)?;
        match self.select(&target, into)? {
            true => Ok(()),
            false if *required => Err(PathError::Missing { at: at(), kind, path: path.clone() }),
            false => Ok(()),
        }
    }

    /// Selects all files below a path. Returns false if the path does not exist.
    pub(super) fn select(&self, path: &str, into: &mut Selection) -> Result<bool, PathError> {
        self.select_as(path, path, &mut vec![], into)
    }

    /// Selects the files below the path `from`, as if they were below `to`.
    fn select_as(
        &self,
        from: &str,
        to: &str,
        above: &mut Vec<String>,
        into: &mut Selection,
    ) -> Result<bool, PathError> {
        match self.resolve(from, into)? {
            Node::Absent => return Ok(false),
            Node::Entry(real) => self.select_entry(&real, to, above, into)?,
            Node::Directory(real) => {
                if !into.directories.insert(to.to_owned()) {
                    return Ok(true);
                }
                let is_same = |parent: &String| *parent == real || is_below(parent, &real);
                if above.iter().any(is_same) || above.len() > MAX_LINKS {
                    return Err(PathError::Loop { at: format!("{to}:1") });
                }
                above.push(real.clone());
                for path in self.below(&real) {
                    let rest = path.strip_prefix(&real).unwrap_or(path).trim_start_matches('/');
                    let target = match to {
                        "" => rest.to_owned(),
                        to => format!("{to}/{rest}"),
                    };
                    self.select_entry(path, &target, above, into)?;
                }
                above.pop();
            }
        }
        Ok(true)
    }

    fn select_entry(
        &self,
        path: &str,
        to: &str,
        above: &mut Vec<String>,
        into: &mut Selection,
    ) -> Result<(), PathError> {
        into.step()?;
        if to.split('/').any(|part| EXCLUDED.contains(&part)) {
            return Ok(());
        }
        if parent_and_name(to).1.contains(STATE) {
            into.skipped += 1;
            return Ok(());
        }
        let Some(entry) = self.entries.get(path) else { return Ok(()) };
        match entry.kind {
            Kind::Submodule => {
                into.submodules.insert(path.to_owned());
            }
            Kind::File { .. } => {
                if into.files.len() >= MAX_FILES {
                    return Err(PathError::TooMany);
                }
                into.files.insert(to.to_owned(), entry.clone());
            }
            Kind::Link => {
                let at = || format!("{path}:1");
                let target = self.links.get(path).cloned().unwrap_or_default();
                let outside =
                    || PathError::Outside { at: at(), kind: "link", path: target.clone() };
                let real = join(parent(path), &target).ok_or_else(outside)?;
                if above.len() > MAX_LINKS {
                    return Err(PathError::Loop { at: at() });
                }
                above.push(path.to_owned());
                let exists = self.select_as(&real, to, above, into)?;
                above.pop();
                if !exists {
                    return Err(PathError::Missing { at: at(), kind: "link", path: target });
                }
            }
        }
        Ok(())
    }

    /// Resolves the links in a path.
    fn resolve(&self, path: &str, into: &mut Selection) -> Result<Node, PathError> {
        let mut rest: Vec<String> =
            path.split('/').filter(|part| !part.is_empty()).rev().map(str::to_owned).collect();
        let (mut current, mut links) = (String::new(), 0);
        while let Some(part) = rest.pop() {
            into.step()?;
            let next = if current.is_empty() { part } else { format!("{current}/{part}") };
            match self.entries.get(&next).map(|entry| entry.kind) {
                Some(Kind::Link) if !rest.is_empty() || self.leads_to_directory(&next) => {
                    links += 1;
                    let at = || format!("{next}:1");
                    if links > MAX_LINKS {
                        return Err(PathError::Loop { at: at() });
                    }
                    let target = self.links.get(&next).cloned().unwrap_or_default();
                    let outside =
                        || PathError::Outside { at: at(), kind: "link", path: target.clone() };
                    let real = join(parent(&next), &target).ok_or_else(outside)?;
                    let parts = real.split('/').filter(|part| !part.is_empty());
                    rest.extend(parts.rev().map(str::to_owned));
                    current = String::new();
                }
                Some(Kind::Submodule) => return Ok(Node::Entry(next)),
                Some(Kind::File { .. } | Kind::Link) if rest.is_empty() => {
                    return Ok(Node::Entry(next));
                }
                Some(Kind::File { .. } | Kind::Link) => return Ok(Node::Absent),
                None if self.below(&next).next().is_some() => current = next,
                None => return Ok(Node::Absent),
            }
        }
        Ok(Node::Directory(current))
    }

    fn leads_to_directory(&self, link: &str) -> bool {
        let target = self.links.get(link).and_then(|target| join(parent(link), target));
        target.is_some_and(|real| real.is_empty() || !self.entries.contains_key(&real))
    }

    /// Returns the paths of the entries below a directory.
    fn below<'t>(&'t self, directory: &str) -> Box<dyn Iterator<Item = &'t str> + 't> {
        if directory.is_empty() {
            return Box::new(self.entries.keys().map(String::as_str));
        }
        let prefix = format!("{directory}/");
        let from = self.entries.range(prefix.clone()..);
        Box::new(
            from.map(|(path, _)| path.as_str()).take_while(move |path| path.starts_with(&prefix)),
        )
    }
}

/// Joins a directory and a relative path. Returns `None` for an absolute path, and for a path
/// outside the repository.
pub(super) fn join(directory: &str, path: &str) -> Option<String> {
    if path.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn parent(path: &str) -> &str {
    parent_and_name(path).0
}

fn parent_and_name(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn is_below(path: &str, directory: &str) -> bool {
    directory.is_empty() || path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests;
