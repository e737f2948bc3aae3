//! Fetches one commit of a repository, even from servers that reject partial fetches or fetches by
//! commit id.
use std::collections::BTreeSet;

use domain::git::{HEAD, is_commit};

use super::command::{Git, GitError};
use crate::plugins::contract::Sink;

/// Messages of servers that reject a fetch by commit id or a shallow fetch.
const REFUSED: [&str; 5] = [
    "not our ref",
    "unadvertised object",
    "couldn't find remote ref",
    "does not support shallow",
    "does not support --depth",
];

/// Finds a branch, a tag or `HEAD`, and returns its full name with its commit. A branch takes
/// precedence over a tag.
pub(super) async fn find(
    git: &Git<'_, '_>,
    reference: &str,
    sink: &mut dyn Sink,
) -> Result<Option<(String, String)>, GitError> {
    let names = names(reference);
    let mut args = vec!["ls-remote", "--quiet", "--", "origin"];
    args.extend(names.iter().map(String::as_str));
    let listed = git.output(&args, None, sink).await?;
    Ok(first_of(&names, &String::from_utf8_lossy(&listed)))
}

/// Returns the possible names of a reference on the server, by precedence. The suffix `^{}` denotes
/// the commit of an annotated tag.
fn names(reference: &str) -> Vec<String> {
    match reference {
        HEAD => vec![HEAD.to_owned()],
        full if full.starts_with("refs/") => vec![format!("{full}^{{}}"), full.to_owned()],
        name => vec![
            format!("refs/heads/{name}"),
            format!("refs/tags/{name}^{{}}"),
            format!("refs/tags/{name}"),
        ],
    }
}

/// Finds the first name in the output of `git ls-remote`.
fn first_of(names: &[String], listed: &str) -> Option<(String, String)> {
    let commits: Vec<(&str, &str)> =
        listed.lines().filter_map(|line| line.split_once('\t')).collect();
    let (id, name) =
        names.iter().find_map(|name| commits.iter().find(|(_, known)| known == name))?;
    let name = name.strip_suffix("^{}").unwrap_or(name);
    is_commit(id).then(|| (name.to_owned(), (*id).to_owned()))
}

/// Fetches a commit. Tries the commit alone without blobs, then the tip of its reference, then the
/// whole history.
pub(super) async fn fetch_commit(
    git: &Git<'_, '_>,
    commit: &str,
    reference: Option<&str>,
    sink: &mut dyn Sink,
) -> Result<(), GitError> {
    let fetched = fetch(git, &["--depth=1", "--filter=blob:none"], &[commit], sink).await;
    let refused = match fetched {
        Ok(()) if has(git, commit, sink).await? => return Ok(()),
        Ok(()) => None,
        Err(GitError::Failed(message)) if is_refusal(&message) => Some(message),
        Err(error @ (GitError::Failed(_) | GitError::Halt(_))) => return Err(error),
    };
    // A reference that moved after its resolution points to another commit.
    if let Some(reference) = reference.filter(|reference| !is_commit(reference))
        && let Some((name, at)) = find(git, reference, sink).await?
        && at == commit
    {
        match fetch(git, &["--depth=1"], &[&name], sink).await {
            Ok(()) if has(git, commit, sink).await? => return Ok(()),
            Ok(()) => {}
            Err(GitError::Failed(message)) if is_refusal(&message) => {}
            Err(error @ (GitError::Failed(_) | GitError::Halt(_))) => return Err(error),
        }
    }
    // A shallow repository gets no history without this option.
    let options: &[&str] = if git.is_shallow() { &["--unshallow"] } else { &[] };
    let all = ["+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"];
    fetch(git, options, &all, sink).await?;
    if has(git, commit, sink).await? {
        return Ok(());
    }
    let refused = refused.map(|message| format!(" ({message})")).unwrap_or_default();
    Err(GitError::Failed(format!(
        "the repository does not have this commit any more{refused}; correct `branch` in the config, or resolve the \
         branch again with `stead apps sync --resolve`"
    )))
}

async fn fetch(
    git: &Git<'_, '_>,
    options: &[&str],
    names: &[&str],
    sink: &mut dyn Sink,
) -> Result<(), GitError> {
    let mut args = vec![
        "fetch",
        "--progress",
        "--no-tags",
        "--no-write-fetch-head",
        "--recurse-submodules=no",
    ];
    args.extend(options);
    args.extend(["--", "origin"]);
    args.extend(names);
    git.run(&args, sink).await
}

/// Returns true if the repository has a commit.
async fn has(git: &Git<'_, '_>, commit: &str, sink: &mut dyn Sink) -> Result<bool, GitError> {
    let check = ["cat-file", "--batch-check"];
    let known = git.output(&check, Some(format!("{commit}\n").as_bytes()), sink).await?;
    Ok(known.starts_with(format!("{commit} commit ").as_bytes()))
}

/// Returns the ids of the blobs of a commit that the repository lacks. Other commands of git before
/// version 2.44 fetch each missing blob in a request of its own.
pub(super) async fn missing_blobs(
    git: &Git<'_, '_>,
    commit: &str,
    sink: &mut dyn Sink,
) -> Result<BTreeSet<String>, GitError> {
    let list = ["rev-list", "--objects", "--no-object-names", "--missing=print", "--no-walk"];
    let listed = git.output(&[&list[..], &[commit, "--"]].concat(), None, sink).await?;
    let listed = String::from_utf8_lossy(&listed);
    Ok(listed.lines().filter_map(|line| line.strip_prefix('?')).map(str::to_owned).collect())
}

/// Returns true if the server rejected this request but may accept another one.
fn is_refusal(message: &str) -> bool {
    REFUSED.iter().any(|part| message.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_takes_precedence_over_a_tag_of_the_same_name() {
        let (one, two, three) = ("1".repeat(40), "2".repeat(40), "3".repeat(40));
        let tag = format!("{two}\trefs/tags/v1\n{three}\trefs/tags/v1^{{}}\n");
        let both = format!("{tag}{one}\trefs/heads/v1\n");
        let of = |reference: &str, listed: &str| first_of(&names(reference), listed);
        assert_eq!(of("v1", &both), Some(("refs/heads/v1".into(), one)));
        assert_eq!(of("v1", &tag), Some(("refs/tags/v1".into(), three.clone())));
        assert_eq!(of("refs/tags/v1", &both), Some(("refs/tags/v1".into(), three)));
        assert_eq!(of("v2", &both), None);
    }

    #[test]
    fn only_a_refusal_leads_to_another_request() {
        for (message, expected) in [
            ("fatal: remote error: upload-pack: not our ref 1234", true),
            ("error: Server does not allow request for unadvertised object 1234", true),
            ("fatal: unable to access 'https://host/x/': Could not resolve host: host", false),
            ("fatal: Authentication failed for 'https://host/x/'", false),
        ] {
            assert_eq!(is_refusal(message), expected, "{message}");
        }
    }
}
