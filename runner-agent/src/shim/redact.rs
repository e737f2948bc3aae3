//! Removes secret values from the lines and outputs of a child, before the shim writes them to
//! disk.
//!
//! Exact values of six bytes and more are found, even if they are encoded (base64 at every
//! alignment, URL, JSON, hexadecimal). They are found across lines, too: a line that may begin such
//! a value is held until the next line. Values that a tool wraps or spaces out are found by pieces.
//!
//! Text and log lines also lose character sequences that only look like a credential ([`shapes`]).
//! Outputs for other components keep these sequences, because an output must not change silently.
mod encoded;
mod shapes;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use serde_json::Value;

use self::{encoded::Pieces, shapes::PrivateKeyState};

/// Replacement of a secret.
pub const MARK: &str = "[redacted]";
/// Shortest value that is redacted. Redaction of shorter values would remove large parts of every
/// log.
pub const MIN_SECRET_BYTES: usize = 6;
/// Minimum number of bytes of an unfinished line that are held back. A credential shape of up to
/// this length is found across a cut.
const MIN_HELD_BACK_BYTES: usize = 8 * 1024;

/// Redactor for a set of values. It keeps no other state.
#[derive(Debug, Default)]
pub struct Redactor {
    automaton: Option<AhoCorasick>,
    pieces: Pieces,
    /// Prefixes of multi-line values. Each prefix ends with a newline.
    beginnings: Vec<Vec<u8>>,
    longest: usize,
}

/// Part of one stream that is held back for the next line.
#[derive(Debug, Default)]
pub struct HeldBack {
    pending: Vec<u8>,
    in_key: PrivateKeyState,
}

impl Redactor {
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let values: Vec<&str> = values.into_iter().collect();
        let pieces = Pieces::of(values.iter().copied());
        let mut patterns: Vec<Vec<u8>> = values.into_iter().flat_map(variants).collect();
        patterns.sort_unstable();
        patterns.dedup();
        let beginnings = patterns.iter().flat_map(|pattern| {
            let ends = pattern.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            ends.map(|(at, _)| pattern[..=at].to_vec()).filter(|start| start.len() < pattern.len())
        });
        let beginnings = beginnings.collect();
        let longest = patterns.iter().map(Vec::len).max().unwrap_or(0);
        let builder =
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&patterns);
        let automaton = builder.ok().filter(|_| !patterns.is_empty());
        Redactor { automaton, pieces, beginnings, longest }
    }

    /// Returns a text without the values and without credential shapes.
    pub fn text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.bytes(text.as_bytes())).into_owned()
    }

    /// Returns JSON without the values in its keys and strings.
    pub fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.exact_text(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(members) => {
                let clean =
                    |(key, member): (String, Value)| (self.exact_text(&key), self.value(member));
                Value::Object(members.into_iter().map(clean).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }

    /// Returns bytes without the values and without credential shapes.
    pub fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        shapes::redact_shapes(self.exact(bytes))
    }

    fn exact_text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.exact(text.as_bytes())).into_owned()
    }

    /// Returns bytes without the values.
    fn exact(&self, bytes: &[u8]) -> Vec<u8> {
        let Some(automaton) = &self.automaton else { return bytes.to_vec() };
        let mut clean = Vec::with_capacity(bytes.len());
        automaton.replace_all_with_bytes(bytes, &mut clean, |_, _, clean| {
            clean.extend_from_slice(MARK.as_bytes());
            true
        });
        // Replace from the end, so that earlier ranges stay valid.
        for range in self.pieces.find(&clean).into_iter().rev() {
            clean.splice(range, MARK.bytes());
        }
        clean
    }

    /// Adds a line of a stream and returns the text that can be shown: complete lines with their
    /// newlines, or the first part of a line that continues (`continues`).
    pub fn line(&self, held_back: &mut HeldBack, line: &[u8], continues: bool) -> Vec<u8> {
        let pending = &mut held_back.pending;
        pending.extend_from_slice(line);
        if !continues {
            pending.push(b'\n');
        }
        let ready =
            if continues { self.before_cut(pending) } else { self.before_beginning(pending) };
        let rest = pending.split_off(ready);
        let shown = std::mem::replace(pending, rest);
        held_back.in_key.lines(self.exact(&shown))
    }

    /// Returns what is held back at the end of a stream.
    pub fn flush(&self, held_back: &mut HeldBack) -> Vec<u8> {
        let shown = std::mem::take(&mut held_back.pending);
        held_back.in_key.lines(self.exact(&shown))
    }

    /// Returns the length of the part that can be shown. It ends before any multi-line value that
    /// may have begun, and cuts no value.
    fn before_beginning(&self, pending: &[u8]) -> usize {
        let started = self.beginnings.iter().filter(|start| pending.ends_with(start));
        let Some(longest) = started.map(Vec::len).max() else { return pending.len() };
        let start = pending.len() - longest;
        // Go back to the start of the line, so that the line stays complete.
        let line = pending[..start].iter().rposition(|byte| *byte == b'\n');
        self.outside(pending, line.map_or(0, |newline| newline + 1))
    }

    /// Returns the length of the part that can be shown of a line that was cut anywhere. It ends
    /// before any value that may have begun.
    fn before_cut(&self, pending: &[u8]) -> usize {
        let most = pending.len().saturating_sub(self.longest.max(MIN_HELD_BACK_BYTES));
        // An unterminated credential pattern must not hold back a line indefinitely.
        let least = most.saturating_sub(MIN_HELD_BACK_BYTES);
        let mut cut = most;
        loop {
            let shaped = Some(shapes::outside(pending, cut)).filter(|shaped| *shaped >= least);
            let outside = self.outside(pending, shaped.unwrap_or(cut));
            if outside == cut || outside < least {
                return outside;
            }
            cut = outside;
        }
    }

    /// Returns this offset, or the start of the value that contains it.
    fn outside(&self, pending: &[u8], cut: usize) -> usize {
        let Some(automaton) = &self.automaton else { return cut };
        let over = automaton.find_iter(pending).find(|at| at.start() < cut && cut < at.end());
        over.map_or(cut, |found| found.start())
    }
}

/// Returns the forms in which a value may be written.
fn variants(value: &str) -> Vec<Vec<u8>> {
    let mut all: Vec<String> = vec![value.into(), value.trim().into()];
    all.extend(value.lines().map(|line| line.trim().into()));
    all.retain(|text| text.len() >= MIN_SECRET_BYTES);
    if value.len() >= MIN_SECRET_BYTES {
        let json = Value::String(value.into()).to_string();
        let json = &json[1..json.len() - 1];
        all.push(json.into());
        all.push(json.replace('/', "\\/"));
        all.extend(escaped(json));
        all.extend(url_encoded(value));
        all.push(hex::encode(value));
        all.push(hex::encode_upper(value));
        all.extend((0..3).flat_map(|alignment| base64_at(value, alignment)));
    }
    all.into_iter().map(String::into_bytes).collect()
}

/// Returns JSON as Go, PHP and .NET write it, with more escapes than necessary.
fn escaped(json: &str) -> [String; 3] {
    let escape = |text: &str, which: &str, ascii: bool, upper: bool| -> String {
        let unit =
            |unit: u16| if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") };
        let one = |letter: char| match which.contains(letter) || (ascii && !letter.is_ascii()) {
            true => letter.encode_utf16(&mut [0; 2]).iter().map(|part| unit(*part)).collect(),
            false => letter.to_string(),
        };
        text.chars().map(one).collect()
    };
    let quotes = json.replace("\\\"", "\"");
    [
        escape(json, "&<>\u{2028}\u{2029}", false, false),
        escape(&json.replace('/', "\\/"), "", true, false),
        escape(&quotes, "&<>'\"+`", true, true),
    ]
}

fn url_encoded(value: &str) -> [String; 3] {
    let encode = |upper: bool| -> String {
        let byte = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ if upper => format!("%{byte:02X}"),
            _ => format!("%{byte:02x}"),
        };
        value.bytes().map(byte).collect()
    };
    [encode(true), encode(false), encode(true).replace("%20", "+")]
}

/// Returns the base64 forms of a value at this alignment, without the characters that depend on the
/// bytes around the value.
fn base64_at(value: &str, alignment: usize) -> [String; 2] {
    let mut bytes = vec![0; alignment];
    bytes.extend_from_slice(value.as_bytes());
    let first = [0, 2, 3][alignment];
    let core = |text: String| {
        let last = text.len() - usize::from(!bytes.len().is_multiple_of(3));
        text[first..last].to_owned()
    };
    [core(STANDARD_NO_PAD.encode(&bytes)), core(URL_SAFE_NO_PAD.encode(&bytes))]
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    const SECRET: &str = "hunter2/\"x y\"";

    #[test]
    fn a_value_is_found_in_every_encoding() {
        let redactor = Redactor::new([SECRET]);
        let forms = [
            SECRET.to_owned(),
            hex::encode(SECRET),
            hex::encode_upper(SECRET),
            serde_json::to_string(&serde_json::json!({ "password": SECRET })).unwrap(),
            STANDARD.encode(SECRET),
            STANDARD.encode(format!("u:{SECRET}")),
            STANDARD.encode(format!("us:{SECRET}!")),
            "hunter2%2F%22x%20y%22".into(),
            "hunter2%2f%22x%20y%22".into(),
            "hunter2%2F%22x+y%22".into(),
            r"hunter2\/\u0022x y\u0022".replace("\\/", "/"),
        ];
        for text in forms {
            let clean = redactor.text(&format!("before {text} after"));
            assert!(clean.contains(MARK), "{text}");
            assert!(clean.starts_with("before ") && clean.ends_with(" after"), "{clean}");
        }
        assert_eq!(redactor.text("nothing here"), "nothing here");
    }

    #[test]
    fn a_value_is_found_in_the_json_of_other_languages() {
        let redactor = Redactor::new(["p&ss<w>örd+'1'"]);
        for text in [
            r"p\u0026ss\u003cw\u003eörd+'1'",
            r"p&ss<w>\u00f6rd+'1'",
            r"p\u0026ss\u003Cw\u003E\u00F6rd\u002B\u00271\u0027",
        ] {
            assert_eq!(redactor.text(text), MARK, "{text}");
        }
    }

    #[test]
    fn a_short_value_is_not_redacted() {
        assert_eq!(Redactor::new(["true", "12345", ""]).text("true 12345"), "true 12345");
    }

    /// Feeds the lines to the redactor and returns its whole output.
    fn shown(redactor: &Redactor, lines: &[&str]) -> String {
        let mut held_back = HeldBack::default();
        let mut all = Vec::new();
        for line in lines {
            all.extend(redactor.line(&mut held_back, line.as_bytes(), false));
        }
        all.extend(redactor.flush(&mut held_back));
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn a_value_is_found_across_lines() {
        let redactor = Redactor::new(["ab\ncd\nefghij"]);
        assert_eq!(shown(&redactor, &["x=ab", "cd", "efghij!", "y"]), "x=[redacted]!\ny\n");
        assert_eq!(shown(&redactor, &["ab", "cd", "other"]), "ab\ncd\nother\n");
        assert_eq!(shown(&redactor, &["ab", "cd"]), "ab\ncd\n");
        let mut held_back = HeldBack::default();
        assert_eq!(redactor.line(&mut held_back, b"plain", false), b"plain\n");
        assert_eq!(redactor.line(&mut held_back, b"ab", false), b"");
    }

    #[test]
    fn each_long_line_of_a_value_is_found() {
        let redactor = Redactor::new(["-----BEGIN KEY-----\nMIIBsecretbytes\n-----END KEY-----\n"]);
        let clean = shown(&redactor, &["  | -----BEGIN KEY-----", "  | MIIBsecretbytes", "done"]);
        assert_eq!(clean, "  | [redacted]\n  | [redacted]\ndone\n");
    }

    #[test]
    fn a_value_is_found_across_records() {
        let redactor = Redactor::new(["hunter22"]);
        for at in 1..20 {
            let text = "....hunter22........";
            let mut held_back = HeldBack::default();
            let mut all = redactor.line(&mut held_back, &text.as_bytes()[..at], true);
            all.extend(redactor.line(&mut held_back, &text.as_bytes()[at..], false));
            assert_eq!(String::from_utf8(all).unwrap(), "....[redacted]........\n", "{at}");
        }
    }

    #[test]
    fn the_end_of_a_value_is_not_cut_off_by_the_beginning_of_the_next() {
        let redactor = Redactor::new(["abc\ndef"]);
        assert_eq!(shown(&redactor, &["abc", "def abc", "x"]), "[redacted] abc\nx\n");
        assert_eq!(shown(&redactor, &["abc", "def abc", "def"]), "[redacted] [redacted]\n");
    }

    proptest::proptest! {
        /// A value is never shown, whatever is around it and wherever lines end or are cut.
        #[test]
        fn no_value_is_written(
            values in proptest::collection::vec("[ab\n]{0,6}[a-c]{3}[ab\n]{0,4}[a-c]{3}", 1..4),
            around in proptest::collection::vec("[a-c\n ]{0,12}", 5),
            cuts in proptest::collection::vec(1_usize..20, 0..12),
        ) {
            let redactor = Redactor::new(values.iter().map(String::as_str));
            let text: String = around
                .iter()
                .enumerate()
                .map(|(index, text)| format!("{text}{}", values[index % values.len()]))
                .collect();
            let (mut held_back, mut all) = (HeldBack::default(), Vec::new());
            let mut cuts = cuts.into_iter().cycle();
            for line in text.split('\n') {
                let mut rest = line.as_bytes();
                while let Some(cut) = cuts.next().filter(|cut| *cut < rest.len()) {
                    all.extend(redactor.line(&mut held_back, &rest[..cut], true));
                    rest = &rest[cut..];
                }
                all.extend(redactor.line(&mut held_back, rest, false));
            }
            all.extend(redactor.flush(&mut held_back));
            let shown = String::from_utf8(all).unwrap();
            for value in &values {
                // The mark itself contains some of these letters, but never six of them in a row.
                proptest::prop_assert!(!shown.contains(value.as_str()), "{value:?} in {shown:?} of {text:?}");
            }
        }
    }

    #[test]
    fn json_is_redacted_in_keys_and_values() {
        let redactor = Redactor::new(["hunter22"]);
        let unredacted = serde_json::json!({"a hunter22": ["hunter22", 1], "b": {"c": "x"}});
        assert!(!redactor.value(unredacted).to_string().contains("hunter22"));
    }
}
