//! Strings and characters as they are written in a template.
use super::{Fault, token::TokenKind};

/// The text of a `"…"` literal, without its quotes.
pub fn interpreted(written: &str, at: usize) -> Result<String, Fault> {
    let mut text = String::new();
    let mut rest = written;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c != '\\' {
            text.push(c);
            continue;
        }
        let (c, length) =
            escape(rest).ok_or_else(|| Fault::parse(at, "unknown escape in a string"))?;
        text.push(c);
        rest = &rest[length..];
    }
    Ok(text)
}

/// A `'c'` literal, which is a number.
pub fn character(rest: &str, at: usize) -> Result<(TokenKind, usize), Fault> {
    let refuse = || Fault::parse(at, "this character is malformed");
    let inner = rest.get(1..).ok_or_else(refuse)?;
    let first = inner.chars().next().ok_or_else(refuse)?;
    let (c, length) = if first == '\\' {
        escape(&inner[1..]).map(|(c, length)| (c, length + 1)).ok_or_else(refuse)?
    } else {
        (first, first.len_utf8())
    };
    if !inner[length..].starts_with('\'') || first == '\'' {
        return Err(refuse());
    }
    Ok((TokenKind::Int(i64::from(u32::from(c))), length + 2))
}

/// The character of what follows a backslash, and how much of it was taken.
fn escape(rest: &str) -> Option<(char, usize)> {
    let simple = match rest.chars().next()? {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '\\' => '\\',
        '\'' => '\'',
        '"' => '"',
        'x' => return hexadecimal(rest, 2),
        'u' => return hexadecimal(rest, 4),
        'U' => return hexadecimal(rest, 8),
        _ => return None,
    };
    Some((simple, 1))
}

fn hexadecimal(rest: &str, digits: usize) -> Option<(char, usize)> {
    let code = u32::from_str_radix(rest.get(1..=digits)?, 16).ok()?;
    // `\xNN` is a byte in Go; above ASCII it would not be text, which nothing here can hold.
    let fits = digits > 2 || code < 0x80;
    char::from_u32(code).filter(|_| fits).map(|c| (c, digits + 1))
}
