//! Strings and characters as Go writes them in source code.

/// Quotes a string as `"…"`. With `ascii`, escapes every character that is not ASCII.
pub fn text(text: &str, ascii: bool) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        escaped(c, '"', ascii, &mut out);
    }
    out.push('"');
    out
}

/// Quotes a character as `'c'`. With `ascii`, escapes a character that is not ASCII.
pub fn character(c: char, ascii: bool) -> String {
    let mut out = String::from("'");
    escaped(c, '\'', ascii, &mut out);
    out.push('\'');
    out
}

fn escaped(c: char, quote: char, ascii: bool, out: &mut String) {
    let code = u32::from(c);
    match c {
        c if c == quote || c == '\\' => {
            out.push('\\');
            out.push(c);
        }
        c if if ascii { (' '..='~').contains(&c) } else { is_printed(c) } => out.push(c),
        '\u{7}' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{b}' => out.push_str("\\v"),
        c if c < ' ' || c == '\u{7f}' => out.push_str(&format!("\\x{code:02x}")),
        _ if code < 0x10000 => out.push_str(&format!("\\u{code:04x}")),
        _ => out.push_str(&format!("\\U{code:08x}")),
    }
}

/// True if a character is visible or is the plain space.
pub fn is_printed(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    // A combining mark counts as visible only after another character.
    !format!("a{c}").escape_debug().any(|c| c == '\\')
}

/// True if a string can be quoted with back quotes.
pub fn fits_back_quotes(text: &str) -> bool {
    text.chars().all(|c| !matches!(c, '\u{feff}' | '`' | '\u{7f}') && (c >= ' ' || c == '\t'))
}
