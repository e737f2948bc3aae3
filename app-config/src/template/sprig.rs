//! Functions of sprig that real configs use, with sprig's semantics.
use std::rc::Rc;

use domain::go_text;

use super::{
    builtin::{spaces, wrong_type},
    call::entries,
    format::plain,
    functions::Answer,
    literal,
    value::{Map, Value},
};

pub fn default(arguments: &[Value], _: usize) -> Answer {
    match arguments {
        [] => Err("requires a default".to_string()),
        [fallback] => Ok(fallback.clone()),
        [fallback, given, ..] => Ok(if given.is_true() { given } else { fallback }.clone()),
    }
}

pub fn coalesce(arguments: &[Value], _: usize) -> Answer {
    Ok(arguments.iter().find(|value| value.is_true()).cloned().unwrap_or(Value::Nil))
}

pub fn ternary(arguments: &[Value], _: usize) -> Answer {
    match arguments {
        [yes, no, which] => Ok(if which.is_true() { yes } else { no }.clone()),
        _ => Err("requires three arguments".to_string()),
    }
}

pub fn dict(arguments: &[Value], most: usize) -> Answer {
    let mut entries = Map::new();
    for pair in arguments.chunks(2) {
        if let Some((key, rest)) = pair.split_first() {
            let value = rest.first().cloned().unwrap_or_else(|| Value::text(""));
            entries.insert(shown(key, most).into(), value);
        }
    }
    Ok(Value::map(entries))
}

pub fn set(arguments: &[Value], _: usize) -> Answer {
    let [map, Value::Text(key), value] = arguments else {
        return Err("requires a map, a key and a value".to_string());
    };
    let Value::Map(entries) = map else { return Err("cannot set a key of nil".to_string()) };
    // Go allows a map that contains itself, and then never finishes printing the map.
    if holds(value, map) {
        return Err("a map cannot contain itself".to_string());
    }
    entries.borrow_mut().insert(key.clone(), value.clone());
    Ok(map.clone())
}

fn holds(value: &Value, map: &Value) -> bool {
    match (value, map) {
        (Value::Map(inner), Value::Map(outer)) => {
            Rc::ptr_eq(inner, outer) || inner.borrow().values().any(|item| holds(item, map))
        }
        (Value::List(items), _) => items.iter().any(|item| holds(item, map)),
        (_, _) => false,
    }
}

pub fn list(arguments: &[Value], _: usize) -> Answer {
    Ok(Value::list(arguments.to_vec()))
}

pub fn append(arguments: &[Value], _: usize) -> Answer {
    match arguments {
        [Value::List(items), item] => {
            Ok(Value::list(items.iter().chain([item]).cloned().collect()))
        }
        _ => Err(wrong_type("a list", arguments.first())),
    }
}

/// Values sorted by key. Sprig's order is random, so no template can depend on it.
pub fn values(arguments: &[Value], _: usize) -> Answer {
    let entries = arguments.first().map(entries).unwrap_or_default();
    Ok(Value::list(entries.into_values().collect()))
}

/// `dig "a" "b" fallback map`: an absent key gives the fallback. A value on the path that is not a
/// map is an error.
pub fn dig(arguments: &[Value], _: usize) -> Answer {
    let [keys @ .., fallback, map] = arguments else {
        return Err("requires at least three arguments".to_string());
    };
    if keys.is_empty() {
        return Err("requires at least three arguments".to_string());
    }
    if let Some(other) = keys.iter().find(|key| !matches!(key, Value::Text(_))) {
        return Err(wrong_type("strings as keys", Some(other)));
    }
    let mut value = map.clone();
    for key in keys {
        let (Value::Map(entries), Value::Text(key)) = (&value, key) else {
            let kind = value.type_name();
            let key = shown(key, 60);
            return Err(format!(
                "cannot read {key:?} from a value of type {kind}: a map is required"
            ));
        };
        let next = entries.borrow().get(key).cloned();
        match next {
            Some(next) => value = next,
            None => return Ok(fallback.clone()),
        }
    }
    Ok(value)
}

pub fn kind_is(arguments: &[Value], _: usize) -> Answer {
    match arguments {
        [Value::Text(kind), value] => Ok(Value::Bool(&**kind == value.kind_name())),
        _ => Err("requires the name of a kind and a value".to_string()),
    }
}

/// Lower case of each character, without language-specific rules.
pub fn lower(arguments: &[Value], _: usize) -> Answer {
    let [Value::Text(text)] = arguments else { return Err("requires a string".to_string()) };
    let lower = text.chars().map(|c| c.to_lowercase().next().unwrap_or(c));
    Ok(Value::text(lower.collect::<String>()))
}

/// `substr start end text`, in bytes. A negative start means the beginning, and the end must then
/// exist. Otherwise, a negative or too large end means the end of the string.
pub fn substr(arguments: &[Value], _: usize) -> Answer {
    let [Value::Int(start), Value::Int(end), Value::Text(text)] = arguments else {
        return Err("requires two integers and a string".to_string());
    };
    let length = text.len() as i64;
    let (start, end) = match (*start, *end) {
        (start, end) if start < 0 => (0, end),
        (start, end) if end < 0 || end > length => (start, length),
        (start, end) => (start, end),
    };
    let bounds = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    let part = bounds.and_then(|(start, end)| text.as_bytes().get(start..end));
    let part = part.ok_or_else(|| format!("bytes {start} to {end} do not exist"))?;
    // `substr` cuts bytes. The bytes of a partial character become U+FFFD, as in Go's JSON output.
    Ok(Value::text(replaced(part)))
}

/// Converts bytes to text. Each invalid byte becomes U+FFFD.
fn replaced(mut bytes: &[u8]) -> String {
    let mut out = String::new();
    loop {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                out.push_str(text);
                return out;
            }
            Err(error) => {
                let (fine, rest) = bytes.split_at(error.valid_up_to());
                out.push_str(&String::from_utf8_lossy(fine));
                out.push('\u{fffd}');
                bytes = rest.get(1..).unwrap_or_default();
            }
        }
    }
}

/// `slice list start end`: the elements from index `start` up to, but not including, index `end`.
pub fn slice(arguments: &[Value], _: usize) -> Answer {
    let Some((Value::List(items), bounds)) = arguments.split_first() else {
        return Err(wrong_type("a list", arguments.first()));
    };
    if items.is_empty() {
        return Ok(Value::Nil);
    }
    let start = bounds.first().map_or(0, counted);
    let end = bounds.get(1).map_or(items.len() as i64, counted);
    let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    let part = range.and_then(|(start, end)| items.get(start..end));
    part.map(|part| Value::list(part.to_vec()))
        .ok_or_else(|| format!("elements {start} to {end} do not exist"))
}

pub fn join(arguments: &[Value], most: usize) -> Answer {
    let [Value::Text(separator), value] = arguments else {
        return Err("requires a separator and a list".to_string());
    };
    let Value::List(items) = value else {
        let shown = if value.is_nil() { String::new() } else { shown(value, most) };
        return Ok(Value::text(shown));
    };
    let mut out = String::new();
    for (at, item) in items.iter().filter(|item| !item.is_nil()).enumerate() {
        if out.len() > most {
            break;
        }
        if at > 0 {
            out.push_str(separator);
        }
        plain(item, &mut out, most);
    }
    Ok(Value::text(out))
}

fn shown(value: &Value, most: usize) -> String {
    let mut text = String::new();
    plain(value, &mut text, most);
    text
}

pub fn int64(arguments: &[Value], _: usize) -> Answer {
    Ok(Value::Int64(arguments.first().map_or(0, counted)))
}

/// Converts a value to an integer. Parses strings, and counts true as one. Any other value that is
/// not a number counts as zero.
fn counted(value: &Value) -> i64 {
    match value {
        Value::Int(number) | Value::Int64(number) => *number,
        Value::Byte(byte) => i64::from(*byte),
        Value::Float(number) => literal::truncated(*number),
        Value::Bool(flag) => i64::from(*flag),
        Value::Text(text) => literal::integer(without_zeros(text), Some(0)).unwrap_or_default(),
        Value::Nil | Value::Null | Value::List(_) | Value::Map(_) | Value::Secret(_) => 0,
    }
}

/// Turns `8.00` into `8`.
fn without_zeros(text: &str) -> &str {
    match text.rsplit_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0') => {
            whole
        }
        Some(_) | None => text,
    }
}

pub fn div(arguments: &[Value], _: usize) -> Answer {
    match arguments {
        [a, b] if counted(b) != 0 => Ok(Value::Int64(counted(a).wrapping_div(counted(b)))),
        _ => Err("division by zero".to_string()),
    }
}

/// Formats seconds as `3h25m45s`. Like sprig, treats any value but an `int64` or an integer string
/// as zero.
pub fn duration(arguments: &[Value], _: usize) -> Answer {
    let seconds = match arguments.first() {
        Some(Value::Int64(seconds)) => *seconds,
        Some(Value::Text(text)) => literal::clamped(text),
        Some(_) | None => 0,
    };
    Ok(Value::text(duration_text(seconds.wrapping_mul(1_000_000_000))))
}

fn duration_text(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let whole = nanoseconds.unsigned_abs();
    let (seconds, fraction) = (whole / 1_000_000_000, whole % 1_000_000_000);
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut last = rest.to_string();
    if fraction > 0 {
        last.push_str(format!(".{fraction:09}").trim_end_matches('0'));
    }
    match (hours, minutes) {
        (0, 0) => format!("{sign}{last}s"),
        (0, _) => format!("{sign}{minutes}m{last}s"),
        (_, _) => format!("{sign}{hours}h{minutes}m{last}s"),
    }
}

/// Base64 of a string.
pub fn b64enc(arguments: &[Value], _: usize) -> Answer {
    let [Value::Text(text)] = arguments else {
        return Err(wrong_type("a string", arguments.first()));
    };
    Ok(Value::text(go_text::base64(text)))
}

/// Each argument in double quotes, with a space between two of them. Skips nil.
pub fn quote(arguments: &[Value], most: usize) -> Answer {
    let given = arguments.iter().filter(|value| !value.is_nil());
    let quoted: Vec<String> =
        given.map(|value| go_text::text(&shown(value, most), false)).collect();
    Ok(Value::text(quoted.join(" ")))
}

pub fn trim(arguments: &[Value], _: usize) -> Answer {
    let [Value::Text(text)] = arguments else {
        return Err(wrong_type("a string", arguments.first()));
    };
    Ok(Value::text(text.trim()))
}

pub fn indent(arguments: &[Value], most: usize) -> Answer {
    indented(arguments, most).map(Value::text)
}

pub fn nindent(arguments: &[Value], most: usize) -> Answer {
    Ok(Value::text(format!("\n{}", indented(arguments, most)?)))
}

fn indented(arguments: &[Value], most: usize) -> Result<String, String> {
    let [Value::Int(given), Value::Text(text)] = arguments else {
        return Err("requires an integer and a string".to_string());
    };
    let width = spaces(*given)? as usize;
    let lines = text.matches('\n').count() + 1;
    if text.len().saturating_add(lines.saturating_mul(width)) > most {
        return Err(format!("the text exceeds the limit of {most} bytes"));
    }
    Ok(go_text::indent(text, width))
}
