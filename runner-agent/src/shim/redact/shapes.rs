//! Takes out what looks like a credential, whatever its value: a key that was made inside of a job is nobody's
//! known value. Only what cannot well be anything else: a prefix that its issuer reserved, or the name beside it.
//!
//! It is done here and not at the server, because offsets and seal of a log count the bytes as they are sent.
use std::sync::LazyLock;

use regex::bytes::Regex;

use super::MARK;

/// `kept` stays before the mark.
const TOKENS: [&str; 14] = [
    // GitHub, GitLab, Slack, Stripe, npm, PyPI, Google, Hugging Face, DigitalOcean, Vault, Terraform Cloud.
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
    // A JSON Web Token: a header and a payload that are JSON objects, and a signature.
    r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,}",
    // The secret half of an AWS key has no prefix: its name stands before it.
    r#"(?<kept>(?i:secret_?access_?key|session_?token)["']?[\t ]*[:=][\t ]*["']?)[A-Za-z0-9/+=]{40,}"#,
];

static SHAPES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let key =
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.)*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)";
    Regex::new(&format!("(?-u){}|{key}", TOKENS.join("|"))).ok()
});

/// The first line of a private key, also in the middle of another line.
static BEGIN: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?-u)-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----").ok());
/// The last line of whatever it is. Its end may be missing.
static END: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?-u)-----END (?:[A-Z0-9 ]{0,60}-----)?").ok());
/// What begins or ends a credential and means nothing in two halves.
static WHOLE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let marker = r"-----(?:BEGIN|END) [A-Z0-9 ]{0,60}-----";
    Regex::new(&format!("(?-u){marker}|{}", TOKENS.join("|"))).ok()
});
/// A word of base64, with what quotes it, ends a list's item, or stands for a newline.
static WORD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?-u)^["'`\[(]*[A-Za-z0-9+/=]*(?:\\+[nr]|["'`,;\\)\]])*$"#).ok()
});
/// Colours of a terminal.
static COLOUR: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?-u)\x1b\[[0-9;]*[A-Za-z]").ok());

/// A text without what has such a shape.
pub fn without(text: Vec<u8>) -> Vec<u8> {
    let Some(shapes) = &*SHAPES else { return text };
    match shapes.replace_all(&text, format!("${{kept}}{MARK}").as_bytes()) {
        std::borrow::Cow::Borrowed(_) => text,
        std::borrow::Cow::Owned(clean) => clean,
    }
}

/// Where a text can be cut: here, or before the credential or the marker of a key that this place is inside of.
pub fn outside(text: &[u8], cut: usize) -> usize {
    let Some(whole) = &*WHOLE else { return cut };
    let over = whole.find_iter(text).find(|at| at.start() < cut && cut < at.end());
    over.map_or(cut, |found| found.start())
}

/// Whether a stream is inside of a private key, which goes over many lines.
#[derive(Debug, Default)]
pub struct InKey {
    inside: bool,
    /// The line itself goes on, too: what follows is hidden whatever it looks like, up to the line's end.
    same_line: bool,
}

impl InKey {
    /// Whole lines, or what is left of one, without what has such a shape.
    pub fn lines(&mut self, text: Vec<u8>) -> Vec<u8> {
        if !self.inside && !find(&text, b"PRIVATE KEY-----") {
            return without(text);
        }
        let lines = text.split_inclusive(|byte| *byte == b'\n').map(|line| self.line(line));
        without(lines.collect::<Vec<_>>().concat())
    }

    /// Keys may end and begin in one line: files that are joined need not end with a newline.
    fn line(&mut self, line: &[u8]) -> Vec<u8> {
        let (mut shown, mut rest) = (Vec::new(), line);
        let newline = if line.ends_with(b"\n") { "\n" } else { "" };
        loop {
            if self.inside {
                if let Some((_, end)) = place(&END, rest) {
                    shown.extend_from_slice(MARK.as_bytes());
                    rest = &rest[end..];
                    (self.inside, self.same_line) = (false, false);
                } else if self.same_line || place(&BEGIN, rest).is_some() || is_of_a_key(rest) {
                    shown.extend_from_slice(MARK.as_bytes());
                    shown.extend_from_slice(newline.as_bytes());
                    self.same_line = newline.is_empty();
                    return shown;
                } else {
                    self.inside = false;
                }
            } else if let Some((start, end)) = place(&BEGIN, rest) {
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

/// Where the first of this is.
fn place(what: &LazyLock<Option<Regex>>, text: &[u8]) -> Option<(usize, usize)> {
    what.as_ref()?.find(text).map(|found| (found.start(), found.end()))
}

/// Base64 to its end, after whatever a tool puts before it; or a header of the key. Anything else is
/// text again: a log that only speaks of keys is not hidden to its end.
fn is_of_a_key(line: &[u8]) -> bool {
    let (Some(colour), Some(word)) = (&*COLOUR, &*WORD) else { return true };
    let line = colour.replace_all(line, b"".as_slice());
    let words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let mut before = words.rev();
    let Some(last) = before.next() else { return true };
    let alone = before.all(|word| !word.iter().any(u8::is_ascii_alphanumeric));
    (word.is_match(last) && (last.len() >= 16 || alone))
        || find(&line, b"Proc-Type:")
        || find(&line, b"DEK-Info:")
}

fn find(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::super::{Redactor, Waiting};

    fn shown(lines: &[&str]) -> String {
        let (redactor, mut waiting) = (Redactor::default(), Waiting::default());
        let mut all = Vec::new();
        for line in lines {
            all.extend(redactor.line(&mut waiting, line.as_bytes(), false));
        }
        all.extend(redactor.rest(&mut waiting));
        String::from_utf8(all).unwrap()
    }

    /// Put together here, so that no scanner takes this file for a leak.
    fn token(prefix: &str, of: char, times: usize) -> String {
        format!("{prefix}{}", String::from(of).repeat(times))
    }

    #[test]
    fn a_credential_is_known_by_its_shape() {
        let secret = "x".repeat(40);
        for (dirty, clean) in [
            (token("ghp_", 'a', 36), "[redacted]".to_owned()),
            (token("glpat-", 'b', 20), "[redacted]".to_owned()),
            (
                token("eyJ", 'c', 20) + &token(".eyJ", 'd', 20) + &token(".", 'e', 43),
                "[redacted]".into(),
            ),
            (
                format!(r#""SecretAccessKey": "{secret}","#),
                r#""SecretAccessKey": "[redacted]","#.into(),
            ),
            (format!("AWS_SECRET_ACCESS_KEY={secret}"), "AWS_SECRET_ACCESS_KEY=[redacted]".into()),
        ] {
            assert_eq!(shown(&[&format!("at {dirty} end")]), format!("at {clean} end\n"));
            assert_eq!(Redactor::default().text(&dirty), clean);
        }
        // What flows to other components is judged by its value alone.
        let output = serde_json::json!(token("ghp_", 'a', 36));
        assert_eq!(Redactor::default().value(output.clone()), output);
        for plain in ["ghp_short", "eyJ.eyJ.x", "secret_access_key = var.key", &"f".repeat(64)] {
            assert_eq!(shown(&[plain]), format!("{plain}\n"));
        }
    }

    #[test]
    fn a_private_key_is_hidden_over_its_lines_and_nothing_after_it() {
        let (begin, end) = ("-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----");
        let body = "MIIEpAIBAAKCAQEA1c7bhYu7XyZk";
        let lines = ["a", begin, body, "Qg==", end, "MIIEafter the key"];
        let hidden = "[redacted]\n".repeat(4);
        assert_eq!(shown(&lines), format!("a\n{hidden}MIIEafter the key\n"));
        let lines =
            [format!("  | {begin}"), format!("  | {body}"), format!("  | {end}"), "b".into()];
        let lines = lines.each_ref().map(String::as_str);
        assert_eq!(shown(&lines), "  | [redacted]\n[redacted]\n[redacted]\nb\n");
        let one = format!(r#"{{"key":"{begin}\n{body}\n{end}\n"}}"#);
        assert_eq!(shown(&[&one]), "{\"key\":\"[redacted]\\n\"}\n");
        let speaks = [begin, "begins a key, as everybody knows.", body];
        assert_eq!(shown(&speaks), format!("[redacted]\n{}\n{body}\n", speaks[1]));
    }

    #[test]
    fn a_private_key_is_hidden_however_its_lines_are_joined_and_quoted() {
        let (begin, end) = ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----");
        let (body, last) = ("MIIEpAIBAAKCAQEA1c7bhYu7XyZk", "kZyX7uYhb7c1AEQACKAABIApEIIM");
        let certificate = format!("-----END CERTIFICATE-----{begin}");
        let lines = ["MIIC", &certificate, body, end, "after"];
        let shown_certificate = "MIIC\n-----END CERTIFICATE-----[redacted]\n";
        assert_eq!(shown(&lines), format!("{shown_certificate}[redacted]\n[redacted]\nafter\n"));
        let joined = format!("{end}{begin}");
        let clean = shown(&[begin, body, &joined, last, end, "after"]);
        assert!(!clean.contains(body) && !clean.contains(last), "{clean}");
        assert!(clean.ends_with("\nafter\n"), "{clean}");
        for (before, after) in [
            ("  \"", "\","),
            ("- '", "'"),
            ("\"", "\\n\","),
            ("\x1b[32m", "\x1b[0m"),
            ("\x1b[2m  | \x1b[0m", "\x1b[0m\r"),
        ] {
            let quoted = |line: &str| format!("{before}{line}{after}");
            let lines = [begin, body, last, "Qg==", end].map(quoted);
            let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            lines.push("after");
            let clean = shown(&lines);
            assert!(!clean.contains(body) && !clean.contains(last), "{clean}");
            assert!(!clean.contains("Qg==") && clean.ends_with("\nafter\n"), "{clean}");
        }
    }

    #[test]
    fn a_credential_is_found_wherever_a_long_line_is_cut() {
        let (begin, end) = ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----");
        let (token, body) = (token("ghp_", 'a', 36), "MIIEpAIBAAKCAQEA1c7bhYu7XyZk");
        // Longer than what is kept back at a cut, so that something is cut.
        let far = " far".repeat(4096);
        let text = format!("{far} {token} {begin}\\n{body}\\n{far}{end} after {token} {far}");
        let starts = [text.find(&token), text.find(begin), text.find(end), text.rfind(&token)];
        for start in starts.map(Option::unwrap) {
            for at in (start - 20)..(start + 60) {
                // The part that is given out first ends about there.
                let at = at + super::super::KEPT;
                let (first, second) = text.as_bytes().split_at(at.min(text.len()));
                let (redactor, mut waiting) = (Redactor::default(), Waiting::default());
                let mut all = redactor.line(&mut waiting, first, true);
                all.extend(redactor.line(&mut waiting, second, false));
                let all = String::from_utf8(all).unwrap();
                assert!(!all.contains("ghp_") && !all.contains(body), "{at}");
                assert!(!all.contains("aaaaaaaa") && !all.contains("PRIVATE"), "{at}");
                assert!(all.contains(" after [redacted]  far"), "{at}");
                assert!(all.ends_with(" far\n"), "{at}");
            }
        }
    }
}
