//! From characters to texts and tokens.
use super::{
    Fault,
    escape::{character, interpreted},
    token::{Item, Token, TokenKind},
};

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

pub fn lex(source: &str) -> Result<Vec<Item>, Fault> {
    let mut items = Vec::new();
    let mut at = 0;
    let mut trim = false;
    while let Some(found) = source[at..].find(OPEN) {
        let open = at + found;
        let inside = open + OPEN.len();
        let trims_left = marker(&source[inside..]);
        push_text(&mut items, &source[at..open], trim, trims_left);
        let start = if trims_left { inside + 1 } else { inside };
        let rest = source[start..].trim_start();
        // A space between the marker and a comment is fine, one without a marker is not.
        let comment = source[start..].starts_with("/*") || (trims_left && rest.starts_with("/*"));
        (at, trim) = if comment {
            skip_comment(source, open, start)?
        } else {
            let (tokens, end, trims_right) = tokens(source, open, start)?;
            items.push(Item::Action { tokens, at: open });
            (end, trims_right)
        };
    }
    push_text(&mut items, &source[at..], trim, false);
    Ok(items)
}

fn push_text(items: &mut Vec<Item>, text: &str, trim_start: bool, trim_end: bool) {
    let text = if trim_start { text.trim_start_matches(is_space) } else { text };
    let text = if trim_end { text.trim_end_matches(is_space) } else { text };
    if !text.is_empty() {
        items.push(Item::Text(text.to_string()));
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// `-` and a space, behind opening braces.
fn marker(rest: &str) -> bool {
    rest.strip_prefix('-').is_some_and(|rest| rest.starts_with(is_space))
}

fn skip_comment(source: &str, open: usize, start: usize) -> Result<(usize, bool), Fault> {
    let Some(end) = source[start..].find("*/") else {
        return Err(Fault::parse(open, "this comment is not closed"));
    };
    let after = &source[start + end + 2..];
    let at = start + end + 2;
    if let Some(rest) = after.strip_prefix(CLOSE) {
        return Ok((source.len() - rest.len(), false));
    }
    let spaces = after.len() - after.trim_start_matches(is_space).len();
    if spaces > 0 && after[spaces..].starts_with("-}}") {
        return Ok((at + spaces + 3, true));
    }
    Err(Fault::parse(at, "a comment has to end right before the closing braces"))
}

/// The tokens up to the closing braces, where they end, and whether they trim what follows.
fn tokens(source: &str, open: usize, start: usize) -> Result<(Vec<Token>, usize, bool), Fault> {
    let mut tokens = Vec::new();
    let mut at = start;
    let mut spaced = true;
    loop {
        let rest = &source[at..];
        if rest.starts_with(CLOSE) {
            return Ok((tokens, at + CLOSE.len(), false));
        }
        let Some(first) = rest.chars().next() else {
            return Err(Fault::parse(open, "these braces are not closed"));
        };
        if is_space(first) {
            let length = rest.len() - rest.trim_start_matches(is_space).len();
            if rest[length..].starts_with("-}}") {
                return Ok((tokens, at + length + 3, true));
            }
            at += length;
            spaced = true;
            continue;
        }
        let (kind, length) = token(rest, at)?;
        tokens.push(Token { kind, at, end: at + length, spaced });
        at += length;
        spaced = false;
    }
}

fn token(rest: &str, at: usize) -> Result<(TokenKind, usize), Fault> {
    if rest.starts_with(":=") {
        return Ok((TokenKind::Declare, 2));
    }
    let mut chars = rest.chars();
    let first = chars.next().unwrap_or_default();
    let second = chars.next().unwrap_or_default();
    let one = |kind| Ok((kind, 1));
    match first {
        '|' => one(TokenKind::Pipe),
        '(' => one(TokenKind::Open),
        ')' => one(TokenKind::Close),
        '=' => one(TokenKind::Assign),
        ',' => one(TokenKind::Comma),
        '"' => quoted(rest, at),
        '`' => raw(rest, at),
        '\'' => character(rest, at),
        '$' => {
            let name = word(&rest[1..]);
            terminated(&rest[1 + name.len()..], at)?;
            Ok((TokenKind::Variable(format!("${name}")), 1 + name.len()))
        }
        '.' if is_word(second) && !second.is_ascii_digit() => {
            let name = word(&rest[1..]);
            terminated(&rest[1 + name.len()..], at)?;
            Ok((TokenKind::Field(name.to_string()), 1 + name.len()))
        }
        '.' if !second.is_ascii_digit() => one(TokenKind::Dot),
        '+' | '-' | '.' | '0'..='9' => number(rest, at),
        c if is_word(c) => {
            let name = word(rest);
            terminated(&rest[name.len()..], at)?;
            Ok((TokenKind::Word(name.to_string()), name.len()))
        }
        c => Err(Fault::parse(at, format!("unexpected character {c:?}"))),
    }
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn word(text: &str) -> &str {
    &text[..text.len() - text.trim_start_matches(is_word).len()]
}

/// What may follow a name; `.a-b` is a mistake and not a subtraction.
fn terminated(rest: &str, at: usize) -> Result<(), Fault> {
    let fine = match rest.chars().next() {
        None => true,
        Some(c) => {
            is_space(c)
                || matches!(c, '.' | ',' | '|' | ':' | '=' | '(' | ')')
                || rest.starts_with(CLOSE)
        }
    };
    if fine {
        return Ok(());
    }
    let c = rest.chars().next().unwrap_or_default();
    Err(Fault::parse(at, format!("unexpected character {c:?} in a name")))
}

fn quoted(rest: &str, at: usize) -> Result<(TokenKind, usize), Fault> {
    let mut escaped = false;
    for (index, c) in rest.char_indices().skip(1) {
        match c {
            '\n' => break,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => {
                let text = interpreted(&rest[1..index], at)?;
                return Ok((TokenKind::Text(text), index + 1));
            }
            _ => {}
        }
    }
    Err(Fault::parse(at, "this string is not closed"))
}

fn raw(rest: &str, at: usize) -> Result<(TokenKind, usize), Fault> {
    match rest[1..].find('`') {
        Some(length) => {
            let text = rest[1..=length].replace('\r', "");
            Ok((TokenKind::Text(text), length + 2))
        }
        None => Err(Fault::parse(at, "this string is not closed")),
    }
}

fn number(rest: &str, at: usize) -> Result<(TokenKind, usize), Fault> {
    let sign = usize::from(rest.starts_with(['+', '-']));
    let mut length = sign;
    let mut last = '0';
    for c in rest[sign..].chars() {
        let exponent_sign = matches!(c, '+' | '-') && matches!(last, 'e' | 'E');
        if !(c.is_ascii_alphanumeric() || c == '.' || c == '_' || exponent_sign) {
            break;
        }
        last = c;
        length += 1;
    }
    let text = &rest[..length];
    match number_of(text) {
        Some(kind) => Ok((kind, length)),
        None => Err(Fault::parse(at, format!("{text:?} is no number"))),
    }
}

fn number_of(text: &str) -> Option<TokenKind> {
    let plain = text.replace('_', "");
    let (negative, digits) = match plain.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let lower = digits.to_ascii_lowercase();
    let radix = |prefix: &str, radix| {
        lower.strip_prefix(prefix).and_then(|digits| i64::from_str_radix(digits, radix).ok())
    };
    let whole =
        radix("0x", 16).or_else(|| radix("0o", 8)).or_else(|| radix("0b", 2)).or_else(|| {
            lower.bytes().all(|b| b.is_ascii_digit()).then(|| lower.parse().ok()).flatten()
        });
    if let Some(whole) = whole {
        return Some(TokenKind::Int(if negative { whole.checked_neg()? } else { whole }));
    }
    let floats =
        lower.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'+' | b'-'));
    if !floats || !lower.bytes().any(|b| b.is_ascii_digit()) {
        return None;
    }
    let float: f64 = lower.parse().ok()?;
    float.is_finite().then_some(TokenKind::Float(if negative { -float } else { float }))
}
