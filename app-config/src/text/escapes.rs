//! Positions of characters in a string with escapes: `"a\nb"` has two lines, but takes one line of
//! its file.
use std::sync::Arc;

/// Positions after each escape of a string.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Escapes(Arc<[Jump]>);

/// End of an escape. From byte `at` of the value to the next escape, value and file have the same
/// characters. `line` and `column` are the position in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Jump {
    at: usize,
    line: u32,
    column: u32,
}

impl Escapes {
    /// Compares a string's spelling, from `line` and `column`, with its value. Only strings in
    /// double quotes have escapes.
    pub(crate) fn of(written: &str, value: &str, mut line: u32, mut column: u32) -> Self {
        if !written.contains('\\') {
            return Escapes::default();
        }
        let (mut jumps, mut rest, mut at) = (Vec::new(), written, 0);
        while let Some(first) = rest.chars().next() {
            let (length, has_value) = match first {
                '\\' => escape(rest),
                '\r' if rest.starts_with("\r\n") && value[at..].starts_with('\n') => (1, false),
                _ => (first.len_utf8(), true),
            };
            for character in rest[..length].chars() {
                (line, column) = if character == '\n' { (line + 1, 1) } else { (line, column + 1) };
            }
            rest = &rest[length..];
            let value_length =
                if has_value { value[at..].chars().next().map_or(0, char::len_utf8) } else { 0 };
            at += value_length;
            if first == '\\' {
                jumps.push(Jump { at, line, column });
            }
        }
        Escapes(jumps.into())
    }

    /// Last jump at or before a byte of the value: its byte, line and column.
    pub(crate) fn before(&self, at: usize) -> Option<(usize, u32, u32)> {
        let next_jump = self.0.partition_point(|jump| jump.at <= at);
        let Jump { at, line, column } = *self.0.get(next_jump.checked_sub(1)?)?;
        Some((at, line, column))
    }
}

/// Length of an escape in bytes, and true if it stands for a character.
fn escape(text: &str) -> (usize, bool) {
    let mut after = text[1..].chars();
    let (length, has_value) = match after.next() {
        Some('u') => (6, true),
        Some('U') => (10, true),
        Some('x') => (4, true),
        // A backslash at the end of a line removes the white space after it.
        Some(' ' | '\t' | '\r' | '\n') => {
            let blank = text[1..].trim_start_matches([' ', '\t', '\r', '\n']);
            (text.len() - blank.len(), false)
        }
        Some(other) => (1 + other.len_utf8(), true),
        None => (1, false),
    };
    // The parser accepted this string, so it does not end inside an escape.
    (if text.is_char_boundary(length) { length } else { text.len() }, has_value)
}

#[cfg(test)]
mod tests {
    use crate::{document::Document, text::Origin};

    /// Compares the position of the letter `X` with the computed one.
    #[test]
    fn the_location_of_a_character_is_correct_after_any_escape() {
        for string in [
            r#""X""#,
            r#""one\ntwo X""#,
            r#""say \"no\" X""#,
            r#""\u00e9\U0001F600é\x41\\ X""#,
            "'one\\ntwo X'",
            "\"\"\"\none\\ntwo\nthree X\"\"\"",
            "\"\"\"one \\\n   \n   X\"\"\"",
            "\"\"\"\\\n  one\\t\\\n  two\n X\"\"\"",
            "\"\"\"one\r\ntwo\\t\r\nthree \\\r\n  X\"\"\"",
        ] {
            let text = format!("a = 1\nk = {string}\n");
            let document = Document::parse("f.toml", text.as_bytes()).unwrap();
            let spot = &document.root["k"].spot;
            let value = spot.node.scalar().unwrap();
            let origin: Origin = document.content("k", spot);
            let at = text.find('X').unwrap();
            let before = &text[..at];
            let line = before.matches('\n').count() as u32 + 1;
            let column = before.rsplit('\n').next().unwrap().chars().count() as u32 + 1;
            assert_eq!(origin.locate(&value, value.find('X').unwrap()), (line, column), "{string}");
        }
    }
}
