//! Takes out what looks like a credential, whatever its value: a key that was made inside of a job is nobody's
//! known value. Only what cannot well be anything else: a prefix that its issuer reserved, or the name beside it.
//!
//! It is done here and not at the server, because offsets and seal of a log count the bytes as they are sent.
use std::sync::LazyLock;

use regex::bytes::Regex;

use super::MARK;

/// `kept` stays before the mark.
static SHAPES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let shapes = [
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
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.)*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
    ];
    Regex::new(&format!("(?-u){}", shapes.join("|"))).ok()
});

const BEGIN: &[u8] = b"-----BEGIN ";

/// A text without what has such a shape.
pub fn without(text: Vec<u8>) -> Vec<u8> {
    let Some(shapes) = &*SHAPES else { return text };
    match shapes.replace_all(&text, format!("${{kept}}{MARK}").as_bytes()) {
        std::borrow::Cow::Borrowed(_) => text,
        std::borrow::Cow::Owned(clean) => clean,
    }
}

/// Whether a stream is inside of a private key, which goes over many lines.
#[derive(Debug, Default)]
pub struct InKey(bool);

impl InKey {
    /// Whole lines, or what is left of one, without what has such a shape.
    pub fn lines(&mut self, text: Vec<u8>) -> Vec<u8> {
        if !self.0 && !find(&text, b"PRIVATE KEY-----") {
            return without(text);
        }
        let lines = text.split_inclusive(|byte| *byte == b'\n').map(|line| self.line(line));
        without(lines.collect::<Vec<_>>().concat())
    }

    fn line(&mut self, line: &[u8]) -> Vec<u8> {
        let ends = find(line, b"-----END ");
        let newline = if line.ends_with(b"\n") { "\n" } else { "" };
        if self.0 && (ends || is_of_a_key(line)) {
            self.0 = !ends;
            return format!("{MARK}{newline}").into_bytes();
        }
        let begins = line.windows(BEGIN.len()).position(|window| window == BEGIN);
        match begins.filter(|_| find(line, b"PRIVATE KEY-----") && !ends) {
            Some(at) => {
                self.0 = true;
                [&line[..at], MARK.as_bytes(), newline.as_bytes()].concat()
            }
            None => {
                self.0 = false;
                line.to_vec()
            }
        }
    }
}

/// Base64 to its end, after whatever a tool puts before it; or a header of the key. Anything else is
/// text again: a log that only speaks of keys is not hidden to its end.
fn is_of_a_key(line: &[u8]) -> bool {
    let words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let Some(last) = words.clone().next_back() else { return true };
    let base64 = last.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(byte));
    (base64 && (last.len() >= 16 || words.clone().count() == 1))
        || find(line, b"Proc-Type:")
        || find(line, b"DEK-Info:")
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
}
