//! Fetches the files of a component: its directory at one commit, and the files that this directory
//! references in its repository.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt as _,
};

use domain::git::{check_reference, is_commit, url, without_userinfo};
use serde::Deserialize;

use super::{
    command::{Git, GitError},
    commit::{fetch_commit, missing_blobs},
    lfs::Pointer,
    references,
    repository::{Disk, Repository},
    submodules::{resolve_url, submodule_url},
    tree::{Entry, Kind, Selection, Tree, join},
};
use crate::plugins::{
    contract::{PluginError, Sink, Stream},
    plugin::{Halt, IoContext as _, Work},
    work::private_dir,
};

/// Maximum size of a component's source, in bytes.
const SOURCE_LIMIT: u64 = 1 << 30;
/// Maximum size of a file that the runner searches for references, in bytes.
const SEARCH_LIMIT: u64 = 1 << 20;
/// Maximum length of a link's target, in bytes.
const LINK_LIMIT: u64 = 4096;
/// Maximum number of submodules of a component.
const MAX_SUBMODULES: usize = 64;
/// Maximum number of passes over the references.
const MAX_PASSES: usize = 64;

/// Git source in the manifest of a build.
#[derive(Debug, Clone, Deserialize)]
struct Source {
    repo: String,
    directory: String,
    #[serde(rename = "ref")]
    reference: String,
    commit: String,
}

/// Writes the files of the manifest's git source to [`Work::root`]. Returns the directory of the
/// component below it.
pub(in crate::plugins) async fn fetch(
    work: &Work<'_>,
    sink: &mut dyn Sink,
) -> Result<String, Halt> {
    let source: Source = serde_json::from_value(work.manifest.inputs["git"].clone())
        .map_err(|error| refusal(format!("the git source in the manifest is invalid: {error}")))?;
    let address = url(&source.repo).map_err(|error| refusal(error.to_string()))?;
    check_reference(&source.reference).map_err(|error| refusal(error.to_string()))?;
    if !is_commit(&source.commit) {
        return Err(refusal("the commit in the manifest is not a commit id".into()));
    }
    let directory = join("", &source.directory)
        .ok_or_else(|| refusal("the directory in the manifest is outside the repository".into()))?;
    let shown = without_userinfo(&source.repo);
    sink.line(
        Stream::Runner,
        format!("source {shown} {directory} at {}", source.commit).as_bytes(),
    );
    let (tree, disk) = (Tree::default(), Disk::default());
    let mut fetch = Fetch { work, repositories: vec![], tree, submodules: 0, disk };
    let (repository, tree) =
        fetch.repository(&address, &source.commit, Some(&source.reference), sink).await?;
    fetch.repositories.push(repository);
    fetch.tree = tree;
    let selection = fetch.select(&source, &directory, sink).await?;
    fetch.write(&selection, sink).await?;
    Ok(directory)
}

struct Fetch<'w, 'j> {
    work: &'w Work<'j>,
    repositories: Vec<Repository<'w, 'j>>,
    tree: Tree,
    submodules: usize,
    disk: Disk,
}

impl<'w, 'j> Fetch<'w, 'j> {
    /// Fetches the trees of a commit, and the targets of its links.
    async fn repository(
        &mut self,
        address: &str,
        commit: &str,
        reference: Option<&str>,
        sink: &mut dyn Sink,
    ) -> Result<(Repository<'w, 'j>, Tree), Halt> {
        let shown = without_userinfo(address);
        let index = self.repositories.len();
        let mut git = Git::new(self.work, &format!("git-{index}"), address, sink).await?;
        git.limit_files(self.disk.left());
        fetch_commit(&git, commit, reference, sink)
            .await
            .map_err(|error| error.into_halt(&format!("cannot fetch {commit} from {shown}")))?;
        self.disk.add(git.size()?)?;
        let failed =
            |error: GitError| error.into_halt(&format!("cannot list the files of {shown}"));
        let missing = missing_blobs(&git, commit, sink).await.map_err(failed)?;
        let list = ["ls-tree", "-r", "-z", "--full-tree", commit];
        let listing = git.output(&list, None, sink).await.map_err(failed)?;
        let mut tree = Tree::parse(&listing, index)
            .map_err(|why| Halt::exit(1, format!("cannot list the files of {shown}: {why}")))?;
        let blobs = self.work.job.work_dir.join(format!("blobs-{index}"));
        private_dir(&blobs)?;
        let url = address.to_owned();
        let mut repository = Repository { git, url, blobs, read: BTreeSet::new(), missing };
        let links = tree.entries.iter().filter(|(_, entry)| entry.kind == Kind::Link);
        let links: Vec<(String, String)> =
            links.map(|(path, entry)| (path.clone(), entry.id.clone())).collect();
        let ids = links.iter().map(|(_, id)| id.clone()).collect();
        repository.load(ids, &mut self.disk, sink).await?;
        for (path, id) in links {
            let Some(target) = repository.bytes(&id, LINK_LIMIT)? else {
                let detail = format!(
                    "{path}:1: the target of the link is longer than {LINK_LIMIT} bytes; remove the link"
                );
                return Err(Halt::exit(1, detail));
            };
            tree.links.insert(path, String::from_utf8_lossy(&target).into_owned());
        }
        Ok((repository, tree))
    }

    /// Selects the directory and all files that it references. Fetches the required submodules.
    async fn select(
        &mut self,
        source: &Source,
        directory: &str,
        sink: &mut dyn Sink,
    ) -> Result<Selection, Halt> {
        let failed = |error: super::tree::PathError| Halt::exit(1, error.to_string());
        let mut steps = 0;
        for _ in 0..MAX_PASSES {
            let mut selection = Selection::continued(steps);
            if !self.tree.select(directory, &mut selection).map_err(failed)? {
                let (repo, commit) = (without_userinfo(&source.repo), &source.commit);
                let detail = format!(
                    "the directory {directory:?} does not exist in {repo} at {commit}; correct `directory` in the \
                     config"
                );
                return Err(Halt::exit(1, detail));
            }
            let mut searched = BTreeSet::new();
            // A reference may select files that contain other references.
            loop {
                let open = selection.files.iter().filter(|(path, _)| {
                    references::has_references(path) && !searched.contains(*path)
                });
                let open: Vec<(String, Entry)> =
                    open.map(|(path, entry)| (path.clone(), entry.clone())).collect();
                if open.is_empty() {
                    break;
                }
                self.load(open.iter().map(|(_, entry)| entry), sink).await?;
                for (path, entry) in open {
                    let bytes = match self.repositories.get(entry.repository) {
                        Some(repository) => {
                            repository.bytes(&entry.id, SEARCH_LIMIT)?.unwrap_or_default()
                        }
                        None => vec![],
                    };
                    // A large source must not delay a cancellation.
                    tokio::task::yield_now().await;
                    if self.work.job.cancel.requested.is_cancelled() {
                        return Err(Halt::cancelled(self.work.job.cancel.forced.is_cancelled()));
                    }
                    for reference in references::references(&path, &bytes) {
                        let selected =
                            self.tree.select_reference(&path, &reference, &mut selection);
                        selected.map_err(failed)?;
                    }
                    searched.insert(path);
                }
            }
            if selection.submodules.is_empty() {
                return Ok(selection);
            }
            steps = selection.steps;
            for path in std::mem::take(&mut selection.submodules) {
                self.submodule(&path, sink).await?;
            }
        }
        let detail = format!(
            "cannot fetch the source: its submodules are nested more than {MAX_PASSES} levels deep; reduce the nesting"
        );
        Err(Halt::exit(1, detail))
    }

    /// Replaces a submodule of the tree with its files.
    async fn submodule(&mut self, path: &str, sink: &mut dyn Sink) -> Result<(), Halt> {
        self.submodules += 1;
        if self.submodules > MAX_SUBMODULES {
            let detail = format!(
                "cannot fetch the source: it has more than {MAX_SUBMODULES} submodules; choose a smaller directory"
            );
            return Err(Halt::exit(1, detail));
        }
        let Some(entry) = self.tree.entries.get(path).cloned() else { return Ok(()) };
        let failed =
            |why: String| Halt::exit(1, format!("cannot fetch the submodule {path}: {why}"));
        let Some(parent) = self.repositories.get_mut(entry.repository) else { return Ok(()) };
        // The `.gitmodules` for a nested submodule is in the root of the submodule that contains
        // it.
        let mut above = path.match_indices('/').map(|(at, _)| path.get(..at).unwrap_or_default());
        let of_parent = |root: &&str| {
            let modules = self.tree.entries.get(&format!("{root}/.gitmodules"));
            modules.is_some_and(|modules| modules.repository == entry.repository)
        };
        let root = if entry.repository == 0 { "" } else { above.find(of_parent).unwrap_or("") };
        let file =
            if root.is_empty() { ".gitmodules".into() } else { format!("{root}/.gitmodules") };
        let own = path.strip_prefix(root).unwrap_or(path).trim_start_matches('/');
        let modules = self.tree.entries.get(&file).map(|modules| modules.id.clone());
        let modules = modules
            .ok_or_else(|| failed("the repository has no .gitmodules; commit that file".into()))?;
        parent.load(vec![modules.clone()], &mut self.disk, sink).await?;
        let modules = parent.blobs.join(modules).display().to_string();
        let list = [
            "config",
            "--file",
            &modules,
            "--null",
            "--get-regexp",
            r"^submodule\..*\.(path|url)$",
        ];
        let settings = parent.git.output(&list, None, sink).await;
        let settings = settings.map_err(|error| error.into_halt("cannot read .gitmodules"))?;
        let written = submodule_url(&settings, own)
            .ok_or_else(|| failed(".gitmodules does not contain it; correct .gitmodules".into()))?;
        let address = resolve_url(&parent.url, &written)
            .ok_or_else(|| {
            failed(format!(
                "its address {written:?} is neither a URL nor a relative path to a repository on the same server; correct .gitmodules"
            ))
        })?;
        let address = url(&address).map_err(|error| failed(error.to_string()))?;
        let (repository, tree) = self.repository(&address, &entry.id, None, sink).await?;
        self.repositories.push(repository);
        self.tree.insert_submodule(path, tree);
        Ok(())
    }

    async fn load(
        &mut self,
        entries: impl Iterator<Item = &Entry>,
        sink: &mut dyn Sink,
    ) -> Result<(), Halt> {
        let mut ids: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for entry in entries {
            ids.entry(entry.repository).or_default().push(entry.id.clone());
        }
        for (index, ids) in ids {
            if let Some(repository) = self.repositories.get_mut(index) {
                repository.load(ids, &mut self.disk, sink).await?;
            }
        }
        Ok(())
    }

    /// Writes the selected files below [`Work::root`].
    async fn write(&mut self, selection: &Selection, sink: &mut dyn Sink) -> Result<(), Halt> {
        self.load(selection.files.values(), sink).await?;
        let mut total = 0_u64;
        for (path, entry) in &selection.files {
            let Some(repository) = self.repositories.get_mut(entry.repository) else { continue };
            let mut content = repository.blobs.join(&entry.id);
            let pointer = Pointer::read(path, &content)?;
            let size = match &pointer {
                Some(pointer) => pointer.size,
                None => fs::metadata(&content).doing(|| format!("cannot read {path}"))?.len(),
            };
            total = total.saturating_add(size);
            if total > SOURCE_LIMIT {
                let detail = format!(
                    "the source is larger than {SOURCE_LIMIT} bytes; choose a smaller directory"
                );
                return Err(Halt::exit(1, detail));
            }
            if let Some(pointer) = pointer {
                let git = &mut repository.git;
                content = pointer.fetch(git, path, &mut self.disk, sink).await?;
            }
            let file = self.work.root.join(path);
            if let Some(parent) = file.parent() {
                fs::create_dir_all(parent).doing(|| format!("cannot create {path}"))?;
            }
            fs::copy(&content, &file).doing(|| format!("cannot write {path}"))?;
            let mode = if entry.kind == (Kind::File { executable: true }) { 0o755 } else { 0o644 };
            fs::set_permissions(&file, fs::Permissions::from_mode(mode))
                .doing(|| format!("cannot write {path}"))?;
        }
        let (files, skipped) = (selection.files.len(), selection.skipped);
        let mut line = format!("fetched {files} files with {total} bytes");
        if skipped > 0 {
            line +=
                &format!("; omitted {skipped} Terraform state files, which may contain secrets");
        }
        sink.line(Stream::Runner, line.as_bytes());
        Ok(())
    }
}

fn refusal(why: String) -> Halt {
    PluginError::Refused(format!("cannot build: {why}")).into()
}

#[cfg(test)]
mod tests;
