//! String, character and number literals of templates.
use super::ast::Number;

/// Text of a `"…"` literal without its quotes. `None` if an escape is invalid.
pub fn interpreted(inner: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c != '\\' {
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let (escaped, length) = escape(rest, '"')?;
        match escaped {
            Escaped::Byte(byte) => bytes.push(byte),
            Escaped::Char(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        rest = &rest[length..];
    }
    // Escapes can produce any bytes. Invalid UTF-8 is replaced.
    Some(
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    )
}

/// Value of a `'c'` literal, which is a number.
pub fn character(written: &str) -> Option<Number> {
    let inner = written.strip_prefix('\'')?.strip_suffix('\'')?;
    let first = inner.chars().next()?;
    let (code, length) = match first {
        '\'' => return None,
        '\\' => match escape(&inner[1..], '\'')? {
            (Escaped::Byte(byte), length) => (u32::from(byte), length + 1),
            (Escaped::Char(c), length) => (u32::from(c), length + 1),
        },
        c => (u32::from(c), c.len_utf8()),
    };
    (length == inner.len()).then(|| Number {
        int: Some(i64::from(code)),
        float: f64::from(code),
        is_float: false,
    })
}

enum Escaped {
    Byte(u8),
    Char(char),
}

/// Character after a backslash, and the length of the escape.
fn escape(rest: &str, quote: char) -> Option<(Escaped, usize)> {
    let byte = |byte: u8| Some((Escaped::Byte(byte), 1));
    match rest.chars().next()? {
        'a' => byte(7),
        'b' => byte(8),
        'f' => byte(12),
        'n' => byte(b'\n'),
        'r' => byte(b'\r'),
        't' => byte(b'\t'),
        'v' => byte(11),
        '\\' => byte(b'\\'),
        c @ ('\'' | '"') if c == quote => byte(c as u8),
        'x' => Some((Escaped::Byte(u8::try_from(digits(rest.get(1..3)?, 16)?).ok()?), 3)),
        '0'..='7' => Some((Escaped::Byte(u8::try_from(digits(rest.get(..3)?, 8)?).ok()?), 3)),
        'u' => Some((Escaped::Char(char::from_u32(digits(rest.get(1..5)?, 16)?)?), 5)),
        'U' => Some((Escaped::Char(char::from_u32(digits(rest.get(1..9)?, 16)?)?), 9)),
        _ => None,
    }
}

/// Parses digits only. The standard parsers would also accept a sign.
fn digits(text: &str, radix: u32) -> Option<u32> {
    text.chars().all(|c| c.is_digit(radix)).then(|| u32::from_str_radix(text, radix).ok())?
}

/// Parses a number literal. `None` if it is invalid.
pub fn number(written: &str) -> Option<Number> {
    let is_float = is_float(written);
    if let Some(int) = integer(written, Some(0)) {
        return Some(Number { int: Some(int), float: int as f64, is_float });
    }
    if let Some(large) = large(written) {
        return Some(Number { int: None, float: large as f64, is_float });
    }
    if !written.contains(['.', 'e', 'E', 'p', 'P']) {
        return None;
    }
    let float = float(written)?;
    // 2^63 is the first float that is too large.
    let whole = float.trunc() == float && (-TWO_TO_63..TWO_TO_63).contains(&float);
    Some(Number { int: whole.then_some(float as i64), float, is_float })
}

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// True if the literal is a float where any type is allowed: `1e3` is one, `0x1e3` is not.
fn is_float(written: &str) -> bool {
    let hexadecimal = written.len() > 2
        && (written.starts_with("0x") || written.starts_with("0X"))
        && !written.contains(['p', 'P']);
    !hexadecimal && written.contains(['.', 'e', 'E', 'p', 'P'])
}

/// Parses an integer as Go does. With base 0, the prefix selects the base, and underscores may
/// separate digits. `None` means base 10.
pub fn integer(written: &str, base: Option<u32>) -> Option<i64> {
    let (negative, digits) = match written.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, written.strip_prefix('+').unwrap_or(written)),
    };
    let size = i128::from(unsigned(digits, base)?);
    i64::try_from(if negative { -size } else { size }).ok()
}

fn large(written: &str) -> Option<u64> {
    unsigned(written, Some(0))
}

fn unsigned(digits: &str, base: Option<u32>) -> Option<u64> {
    let (text, radix) = match base {
        Some(0) => {
            let lower = digits.get(..2).unwrap_or_default().to_ascii_lowercase();
            let (prefix, radix) = match lower.as_str() {
                "0x" => (2, 16),
                "0o" => (2, 8),
                "0b" => (2, 2),
                _ if digits.len() > 1 && digits.starts_with('0') => (1, 8),
                _ => (0, 10),
            };
            if digits.contains('_') && !underscores_fit(digits) {
                return None;
            }
            (digits[prefix..].replace('_', ""), radix)
        }
        Some(radix) => (digits.to_string(), radix),
        None => (digits.to_string(), 10),
    };
    // A sign is valid only at the start.
    if !text.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    u64::from_str_radix(&text, radix).ok()
}

fn underscores_fit(number: &str) -> bool {
    let number = number.strip_prefix(['+', '-']).unwrap_or(number).to_ascii_lowercase();
    let prefixed = ["0x", "0o", "0b"].iter().any(|prefix| number.starts_with(prefix));
    let hexadecimal = number.starts_with("0x");
    let mut last = if prefixed { '0' } else { '^' };
    for c in number.chars().skip(if prefixed { 2 } else { 0 }) {
        if c.is_ascii_digit() || (hexadecimal && c.is_ascii_hexdigit()) {
            last = '0';
        } else if c == '_' {
            if last != '0' {
                return false;
            }
            last = '_';
        } else {
            if last == '_' {
                return false;
            }
            last = '!';
        }
    }
    last != '_'
}

fn float(written: &str) -> Option<f64> {
    if written.contains('_') && !underscores_fit(written) {
        return None;
    }
    let plain = written.replace('_', "").to_ascii_lowercase();
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(&plain);
    let size = match unsigned.strip_prefix("0x") {
        Some(hexadecimal) => hexadecimal_float(hexadecimal)?,
        None => {
            let fits = unsigned.chars().all(|c| c.is_ascii_digit() || ".e+-".contains(c));
            if !fits || !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
                return None;
            }
            unsigned.parse().ok()?
        }
    };
    // A number that is too large is invalid. A number that is too small becomes zero.
    size.is_finite().then_some(if plain.starts_with('-') { -size } else { size })
}

/// Parses `1.8p3`, the part after `0x`. Rejects more digits than a float holds, instead of
/// rounding.
fn hexadecimal_float(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once('p')?;
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{part}");
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    let mantissa = if digits.is_empty() { 0 } else { u64::from_str_radix(digits, 16).ok()? };
    if mantissa >= 1 << 53 {
        return None;
    }
    let exponent = integer(exponent, None)?.clamp(-5000, 5000) - 4 * part.len() as i64;
    // Two steps, so that neither power leaves the range of a float before the other is applied.
    let half = exponent / 2;
    let (a, b) = (i32::try_from(half).ok()?, i32::try_from(exponent - half).ok()?);
    Some(mantissa as f64 * 2f64.powi(a) * 2f64.powi(b))
}

/// Drops the fraction of a float. A float that does not fit becomes the smallest integer, as Go's
/// conversion does on amd64.
pub fn truncated(float: f64) -> i64 {
    if (-TWO_TO_63..TWO_TO_63).contains(&float) { float as i64 } else { i64::MIN }
}

/// Parses a decimal integer. A number that does not fit becomes the nearest `i64`, and an invalid
/// string becomes zero.
pub fn clamped(written: &str) -> i64 {
    let digits = written.strip_prefix(['+', '-']).unwrap_or(written);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return 0;
    }
    match integer(written, None) {
        Some(number) => number,
        None if written.starts_with('-') => i64::MIN,
        None => i64::MAX,
    }
}
