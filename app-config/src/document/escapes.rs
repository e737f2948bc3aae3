//! Where the characters of a string stand in its file. An escape is written with more characters
//! than it means, and a line that ends with `\` goes on without a newline in the text.
use std::ops::Range;

use super::Document;
use crate::{
    diagnostic::Place,
    text::{Jump, Jumps},
};

/// The places behind the escapes of a basic string, whose characters are the bytes `raw` of the
/// file and mean `text`.
pub fn jumps(document: &Document, raw: Range<usize>, text: &str) -> Jumps {
    let written = document.text.get(raw.clone()).unwrap_or_default();
    // Only in templates something is looked for.
    if !written.contains('\\') || !text.contains("{{") {
        return Jumps::default();
    }
    let (mut here, mut at, mut jumps) = (0, 0, Vec::new());
    while let Some(c) = written[here..].chars().next() {
        if c != '\\' {
            let is_dropped = c == '\r' && text.as_bytes().get(at) != Some(&b'\r');
            here += c.len_utf8();
            at += if is_dropped { 0 } else { c.len_utf8() };
            continue;
        }
        let Some((taken, meant)) = escape(&written[here..]) else { return Jumps::default() };
        here += taken;
        at += meant;
        let behind = raw.start + here;
        let Place { line, column, .. } = document.place(behind..behind);
        jumps.push(Jump { at, line, column });
    }
    // A text that was read otherwise than here is better said to be at its beginning.
    if at == text.len() { Jumps::of(jumps) } else { Jumps::default() }
}

/// How many bytes an escape takes, and how many it means.
fn escape(written: &str) -> Option<(usize, usize)> {
    let digits = match written[1..].chars().next()? {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        ' ' | '\t' | '\r' | '\n' => {
            let behind = written[1..].trim_start_matches([' ', '\t', '\r', '\n']);
            return Some((written.len() - behind.len(), 0));
        }
        _ => return Some((2, 1)),
    };
    let code = u32::from_str_radix(written.get(2..2 + digits)?, 16).ok()?;
    Some((2 + digits, char::from_u32(code)?.len_utf8()))
}
