//! Texts as the functions of Go's templates write them. Templates use these functions on the server,
//! and the runner uses them on sensitive values, which the server cannot read.

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

/// Writes a JSON string. Like Go, escapes characters that could end a script in HTML, because real
/// templates rely on these escapes.
pub fn json_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Writes JSON without white space, with the escapes of [`json_string`].
pub fn json(value: &serde_json::Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        match c {
            // These characters occur only inside strings.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out
}

/// Encodes a text in base64 with padding (RFC 4648, section 4).
pub fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(text.len().div_ceil(3) * 4);
    for group in text.as_bytes().chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or_default());
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for at in 0..4 {
            let digit = DIGITS[((bits >> (18 - 6 * at)) & 63) as usize];
            out.push(if at <= group.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

/// Indents every line, also empty ones, as sprig does.
pub fn indent(text: &str, spaces: usize) -> String {
    let pad = " ".repeat(spaces);
    format!("{pad}{}", text.replace('\n', &format!("\n{pad}")))
}

/// Escapes a text for the query of a URL.
pub fn url_query(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            b' ' => out.push('+'),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
