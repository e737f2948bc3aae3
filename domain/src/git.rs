//! Sources in git repositories: address, directory and reference of a component's source.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Reference of a source that names none: the default branch.
pub const HEAD: &str = "HEAD";
/// Maximum length of an address, a directory or a reference, in bytes.
const MAX_LENGTH: usize = 1024;

/// Directory of a git repository at a reference.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Encode, Decode, ToSchema,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GitSource {
    /// `OWNER/NAME`, which means `https://github.com/OWNER/NAME`, or a URL with `https` or `ssh`.
    pub repo: String,
    /// Directory in the repository. `.` is its root.
    pub directory: String,
    /// Branch, tag or commit id. `HEAD` is the default branch.
    #[serde(rename = "ref")]
    pub reference: String,
}

/// Reason why a build runner cannot fetch from an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GitAddressError {
    #[error(
        "cannot fetch from {0:?}: it is not the address of a repository; use OWNER/NAME, an https:// \
         URL or an ssh:// URL"
    )]
    Address(String),
    #[error(
        "cannot fetch from {0:?}: the URL contains a credential; remove the credential, and set it in \
         the git configuration of the build runner"
    )]
    Credential(String),
    #[error(
        "cannot fetch the ref {0:?}: it is not the name of a branch, a tag or a commit; correct \
         `branch`"
    )]
    Reference(String),
}

impl GitSource {
    /// Returns repository and reference. Sources with the same target resolve to the same commit.
    pub fn target(&self) -> (&str, &str) {
        (&self.repo, &self.reference)
    }
}

/// Returns the URL of a repository. Rejects other schemes, credentials, local paths, and addresses
/// that git could parse as an option.
///
/// # Errors
/// [`GitAddressError::Address`] or [`GitAddressError::Credential`]
pub fn url(repo: &str) -> Result<String, GitAddressError> {
    let error = || GitAddressError::Address(redacted(repo));
    let is_plain = |c: char| c.is_ascii_graphic() && !"\\\"'?#".contains(c);
    let is_dots =
        |part: &str| matches!(part.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
    if repo.len() > MAX_LENGTH
        || repo.starts_with('-')
        || !repo.chars().all(is_plain)
        || repo.split(['/', ':']).any(is_dots)
    {
        return Err(error());
    }
    if let Some((scheme, rest)) = repo.split_once("://") {
        // Git has no transport of the name `HTTPS`.
        let is_allowed = ["https", "ssh"].contains(&scheme);
        let authority = rest.split('/').next().unwrap_or_default();
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        // With ssh, the user is part of the address.
        let is_ssh = scheme.eq_ignore_ascii_case("ssh");
        if user.is_some_and(|user| !is_ssh || user.contains(':')) {
            return Err(GitAddressError::Credential(without_userinfo(repo)));
        }
        let starts = |text: &str| text.starts_with(['-', ':']);
        let is_named = !host.is_empty() && !starts(host) && !user.is_some_and(starts);
        return if is_allowed && is_named { Ok(repo.into()) } else { Err(error()) };
    }
    if repo.contains("::") {
        return Err(error());
    }
    if let Some((host, path)) = repo.split_once(':') {
        // The short form of ssh: `user@host:path`.
        let is_host =
            host.contains('@') && !host.starts_with('-') && !host.contains('/') && !path.is_empty();
        let machine = host.rsplit('@').next().unwrap_or_default();
        let is_named = !machine.is_empty() && !machine.starts_with('-') && !path.starts_with('-');
        return if is_host && is_named { Ok(repo.into()) } else { Err(error()) };
    }
    let is_word = |word: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !word.is_empty() && !word.starts_with(['-', '.']) && word.chars().all(plain)
    };
    match repo.split('/').collect::<Vec<_>>().as_slice() {
        [owner, name] if is_word(owner) && is_word(name) => {
            Ok(format!("https://github.com/{owner}/{name}"))
        }
        _ => Err(error()),
    }
}

/// Checks the name of a branch, a tag or a commit.
///
/// # Errors
/// [`GitAddressError::Reference`]
pub fn check_reference(reference: &str) -> Result<(), GitAddressError> {
    let is_plain = |c: char| c.is_ascii_graphic() && !"~^:?*[\\".contains(c);
    let is_valid = (1..=MAX_LENGTH).contains(&reference.len())
        && reference.chars().all(is_plain)
        && !reference.starts_with(['-', '/'])
        && !reference.ends_with(['/', '.'])
        && !["..", "//", "@{"].iter().any(|part| reference.contains(part));
    if is_valid { Ok(()) } else { Err(GitAddressError::Reference(reference.into())) }
}

/// Returns true if the text is the full id of a commit: 40 hexadecimal digits.
pub fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Removes user and password from an invalid address, including those of the short form of ssh.
fn redacted(repo: &str) -> String {
    match repo.rsplit_once('@') {
        Some((_, rest)) if !repo.contains("://") => format!("***@{rest}"),
        Some(_) | None => without_userinfo(repo),
    }
}

/// Replaces user and password in every URL of a text with `***`.
pub fn without_userinfo(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown += before;
        let ends = |c: char| c.is_whitespace() || "/'\"<>".contains(c);
        let end = after.find(ends).unwrap_or(after.len());
        rest = match after[..end].rfind('@') {
            Some(user) => {
                shown += "***@";
                &after[user + 1..]
            }
            None => after,
        };
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_and_ssh_lead_to_a_repository() {
        for (repo, expected) in [
            ("acme/modules", "https://github.com/acme/modules"),
            (
                "https://git.example.com/acme/modules.git",
                "https://git.example.com/acme/modules.git",
            ),
            ("ssh://git@host:22/x", "ssh://git@host:22/x"),
            ("git@github.com:acme/modules.git", "git@github.com:acme/modules.git"),
        ] {
            assert_eq!(url(repo).as_deref(), Ok(expected), "{repo}");
        }
        for repo in [
            "",
            ".",
            "modules",
            "../modules/x",
            "/srv/git/x",
            "file:///srv/git/x",
            "FILE:///srv/git/x",
            "HTTPS://host/x",
            "http://host/x",
            "git://host/x",
            "ext::sh -c touch% /tmp/x",
            "ext::sh",
            "fd::17",
            "https::file:///x",
            "--upload-pack=x",
            "-x/y",
            "https://",
            "https://user:secret@host/x",
            "https://token@host/x",
            "ssh://git:secret@host/x",
            "ssh://-oProxyCommand=x/y",
            "git@-oProxyCommand=x:y",
            "host:path",
            "acme/modules/more",
            "https://host/acme/../other",
            "https://host/acme/./other",
            "https://host/acme/%2e%2E/other",
            "https://host/acme/.%2e",
            "ssh://git@host/../x",
            "git@host:../x",
            "git@host:acme/../../x",
            "https://host/acme/modules?ref=main",
            "https://host/acme/modules#main",
            "me:secret@host:acme/modules",
            "acme/mod ules",
            "acme/\u{1b}[0m",
        ] {
            assert!(url(repo).is_err(), "{repo:?}");
        }
    }

    #[test]
    fn a_reference_is_no_option_and_no_expression() {
        for name in ["main", "v1.2.3", "feature/x", "HEAD", &"a".repeat(40)] {
            assert_eq!(check_reference(name), Ok(()), "{name}");
        }
        for name in ["", "-x", "a..b", "main~1", "main^", "a:b", "a b", "@{-1}", "a/", "a\nb"] {
            assert!(check_reference(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_shown_url_has_no_credential() {
        let message = "fatal: unable to access 'https://me:pass@host/x/': 403, https://t@h, a@b";
        let shown = "fatal: unable to access 'https://***@host/x/': 403, https://***@h, a@b";
        assert_eq!(without_userinfo(message), shown);
        let error = url("file://me:pass@host/x").unwrap_err().to_string();
        assert!(!error.contains("pass"), "{error}");
        let error = url("me:pass@host:acme/x").unwrap_err().to_string();
        assert!(error.contains("***@host:acme/x") && !error.contains("pass"), "{error}");
    }
}
