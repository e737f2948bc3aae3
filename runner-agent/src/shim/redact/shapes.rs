//! Removes text that looks like a credential, because a credential that was created in a job is not
//! a known value. A credential is recognized by a prefix that its issuer reserved, or by the name
//! next to it.
//!
//! The runner does this, not the server: the offsets and the digest of a log cover the bytes as
//! they are sent.
use std::sync::LazyLock;

use regex::bytes::Regex;

use super::MARK;

/// Patterns of credentials. The text of the group `kept` stays before the mark.
const TOKENS: [&str; 15] = [
    // Stead: tokens of users, services and enrolments.
    r"\bstead_[A-Za-z0-9_-]{43,}",
    // GitHub, GitLab, Slack, Stripe, npm, PyPI, Google, Hugging Face, DigitalOcean, Vault,
    // Terraform Cloud.
    r"\bgh[pousr]_[A-Za-z0-9]{36,251}\b",
    r"\bgithub_pat_[A-Za-z0-9_]{50,251}\b",
    r"\bglpat-[A-Za-z0-9_-]{20,}",
    r"\bxox[abeprs]-[A-Za-z0-9-]{20,}",
    r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{20,}\b",
    r"\bnpm_[A-Za-z0-9]{36}\b",
    r"\bpypi-[A-Za-z0-9_-]{60,}",
    r"\bAIza[A-Za-z0-9_-]{35}",
    r"\bhf_[A-Za-z0-9]{34}\b",
    r"\bdop_v1_[a-f0-9]{64}\b",
    r"\bhvs\.[A-Za-z0-9_-]{24,}",
    r"\b[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}",
    // JSON Web Token: a header and a payload that are JSON objects, and a signature.
    r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,}",
    // The secret half of an AWS key has no prefix, so its name identifies it.
    r#"(?<kept>(?i:secret_?access_?key|session_?token)["']?[\t ]*[:=][\t ]*["']?)[A-Za-z0-9/+=]{40,}"#,
];

static SHAPES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let key =
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.)*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)";
    Regex::new(&format!("(?-u){}|{key}", TOKENS.join("|"))).ok()
});

/// First line of a private key, at any position of a line.
static BEGIN: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?-u)-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----").ok());
/// Last line of any PEM block. Its end may be missing.
static END: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?-u)-----END (?:[A-Z0-9 ]{0,60}-----)?").ok());
/// Tokens and key markers, which must not be split.
static UNSPLITTABLE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let marker = r"-----(?:BEGIN|END) [A-Z0-9 ]{0,60}-----";
    Regex::new(&format!("(?-u){marker}|{}", TOKENS.join("|"))).ok()
});
/// Base64 word with quotes, list separators or an escaped newline around it.
static BASE64_WORD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?-u)^["'`\[(]*[A-Za-z0-9+/=]*(?:\\+[nr]|["'`,;\\)\]])*$"#).ok()
});
/// Base64 anywhere in a line. Some JSON writers put a backslash before a slash.
static BASE64_RUN: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?-u)(?:[A-Za-z0-9+/]|\\/)+={0,2}").ok());
/// Terminal colors.
static COLOR: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?-u)\x1b\[[0-9;]*[A-Za-z]").ok());

/// Returns a text without credential shapes.
pub fn redact_shapes(text: Vec<u8>) -> Vec<u8> {
    let Some(shapes) = &*SHAPES else { return text };
    match shapes.replace_all(&text, format!("${{kept}}{MARK}").as_bytes()) {
        std::borrow::Cow::Borrowed(_) => text,
        std::borrow::Cow::Owned(clean) => clean,
    }
}

/// Returns an offset at which a text can be cut: `cut`, or the start of the credential or key
/// marker that contains it.
pub fn outside(text: &[u8], cut: usize) -> usize {
    let Some(whole) = &*UNSPLITTABLE else { return cut };
    let over = whole.find_iter(text).find(|at| at.start() < cut && cut < at.end());
    over.map_or(cut, |found| found.start())
}

/// Position of a stream relative to private keys, which span many lines.
#[derive(Debug, Default)]
pub struct PrivateKeyState {
    inside: bool,
    /// `true` while the current line continues inside the key. The rest of the line is hidden,
    /// regardless of its content.
    same_line: bool,
}

impl PrivateKeyState {
    /// Removes private keys and credential shapes from complete lines, or from the rest of a line.
    pub fn lines(&mut self, text: Vec<u8>) -> Vec<u8> {
        if !self.inside && !find(&text, b"PRIVATE KEY-----") {
            return redact_shapes(text);
        }
        let lines = text.split_inclusive(|byte| *byte == b'\n').map(|line| self.line(line));
        redact_shapes(lines.collect::<Vec<_>>().concat())
    }

    /// Handles one line. A key may end and another begin in it: joined files need not end with a
    /// newline.
    fn line(&mut self, line: &[u8]) -> Vec<u8> {
        let (mut shown, mut rest) = (Vec::new(), line);
        let newline = if line.ends_with(b"\n") { "\n" } else { "" };
        loop {
            if self.inside {
                if let Some((_, end)) = find_first(&END, rest) {
                    shown.extend_from_slice(MARK.as_bytes());
                    rest = &rest[end..];
                    (self.inside, self.same_line) = (false, false);
                } else if self.same_line || find_first(&BEGIN, rest).is_some() || is_key_line(rest)
                {
                    shown.extend_from_slice(MARK.as_bytes());
                    shown.extend_from_slice(newline.as_bytes());
                    self.same_line = newline.is_empty();
                    return shown;
                } else {
                    self.inside = false;
                }
            } else if let Some((start, end)) = find_first(&BEGIN, rest) {
                shown.extend_from_slice(&rest[..start]);
                rest = &rest[end..];
                (self.inside, self.same_line) = (true, true);
            } else {
                shown.extend_from_slice(rest);
                return shown;
            }
        }
    }
}

/// Returns the range of the first match.
fn find_first(what: &LazyLock<Option<Regex>>, text: &[u8]) -> Option<(usize, usize)> {
    what.as_ref()?.find(text).map(|found| (found.start(), found.end()))
}

/// Returns whether a line may belong to a key: base64, even with text that a tool puts around it,
/// or a header of the key.
///
/// Any other line ends the key, so that a log that only mentions keys is not hidden to its end.
fn is_key_line(line: &[u8]) -> bool {
    let (Some(color), Some(word), Some(run)) = (&*COLOR, &*BASE64_WORD, &*BASE64_RUN) else {
        return true;
    };
    let line = color.replace_all(line, b"".as_slice());
    let words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let Some(last) = words.clone().next_back() else { return true };
    let mut words_with_text = words.filter(|word| word.iter().any(u8::is_ascii_alphanumeric));
    let only = match (words_with_text.next(), words_with_text.next()) {
        (Some(_), Some(_)) => None,
        (only, _) => only.or(Some(last)),
    };
    only.is_some_and(|only| word.is_match(only))
        || (last.len() >= 16 && word.is_match(last))
        || run.find_iter(&line).any(|run| is_key_like(&line[..run.start()], run.as_bytes()))
        || find(&line, b"Proc-Type:")
        || find(&line, b"DEK-Info:")
}

/// Returns whether a run of base64 looks like a key, and not like a hash, a path or a name, which
/// are common in logs. `before` is the part of the line in front of the run.
fn is_key_like(before: &[u8], run: &[u8]) -> bool {
    let has = |kind: fn(&u8) -> bool| run.iter().any(kind);
    let mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    let long = run.len() >= 40 || (run.len() >= 16 && has(u8::is_ascii_digit));
    // Match the padded last line of a key, but not the name in `job="7"`.
    let quoted = matches!(before.last(), Some(b'"' | b'\'' | b'`'));
    let padded = run.ends_with(b"==") || (run.ends_with(b"=") && quoted);
    (long && mixed) || (padded && run.len().is_multiple_of(4))
}

fn find(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

#[cfg(test)]
mod tests;
