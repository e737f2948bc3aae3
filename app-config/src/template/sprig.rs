//! The functions of sprig that real configs use, with sprig's meaning.
use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{
    format::{decimal, plain, scientific, shortest},
    functions::{exactly, int_of, text_of, wanted},
    value::{Value, from_json},
};

type Answer = Result<Value, String>;

fn is_empty(value: &Value) -> bool {
    !value.is_true()
}

pub fn default(arguments: &[Value]) -> Answer {
    match arguments {
        [] => Err("it needs a default".to_string()),
        [fallback] => Ok(fallback.clone()),
        [fallback, given, ..] => Ok(if is_empty(given) { fallback } else { given }.clone()),
    }
}

pub fn coalesce(arguments: &[Value]) -> Answer {
    let found = arguments.iter().find(|value| !is_empty(value));
    Ok(found.cloned().unwrap_or(Value::Nil))
}

pub fn ternary(arguments: &[Value]) -> Answer {
    let [yes, no, which] = exactly(arguments)?;
    match which {
        Value::Bool(true) => Ok(yes.clone()),
        Value::Bool(false) => Ok(no.clone()),
        Value::Nil | Value::Int(_) | Value::Float(_) | Value::Text(_) => {
            Err(wanted("a bool", which))
        }
        Value::List(_) | Value::Map(_) => Err(wanted("a bool", which)),
    }
}

pub fn dict(arguments: &[Value]) -> Answer {
    let mut entries = BTreeMap::new();
    for pair in arguments.chunks(2) {
        if let Some((key, rest)) = pair.split_first() {
            let value = rest.first().cloned().unwrap_or_else(|| Value::text(""));
            entries.insert(shown(key), value);
        }
    }
    Ok(Value::map(entries))
}

pub fn set(arguments: &[Value]) -> Answer {
    let [map, key, value] = exactly(arguments)?;
    let Value::Map(entries) = map else { return Err(wanted("a map", map)) };
    // A copy, so that no value ever holds itself.
    let value = copied(value);
    entries.borrow_mut().insert(text_of(key)?.to_string(), value);
    Ok(map.clone())
}

fn copied(value: &Value) -> Value {
    match value {
        Value::List(items) => Value::list(items.iter().map(copied).collect()),
        Value::Map(entries) => {
            let entries = entries.borrow();
            Value::map(entries.iter().map(|(key, item)| (key.clone(), copied(item))).collect())
        }
        Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => {
            value.clone()
        }
    }
}

pub fn append(arguments: &[Value]) -> Answer {
    let [list, item] = exactly(arguments)?;
    let Value::List(items) = list else { return Err(wanted("a list", list)) };
    let mut items = items.to_vec();
    items.push(item.clone());
    Ok(Value::list(items))
}

pub fn values(arguments: &[Value]) -> Answer {
    let [map] = exactly(arguments)?;
    let Value::Map(entries) = map else { return Err(wanted("a map", map)) };
    Ok(Value::list(entries.borrow().values().cloned().collect()))
}

/// `dig "a" "b" fallback map`: a step that is not there gives the fallback; a step into something
/// that is no map is an error.
pub fn dig(arguments: &[Value]) -> Answer {
    let [keys @ .., fallback, map] = arguments else {
        return Err("it needs at least three arguments".to_string());
    };
    let Some((last, path)) = keys.split_last() else {
        return Err("it needs at least three arguments".to_string());
    };
    let mut value = map.clone();
    for (step, key) in path.iter().chain([last]).enumerate() {
        let key = text_of(key)?;
        let next = match &value {
            Value::Map(entries) => entries.borrow().get(key).cloned(),
            Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
                return Err(no_map(step, &value));
            }
            Value::Text(_) | Value::List(_) => return Err(no_map(step, &value)),
        };
        match next {
            Some(next) => value = next,
            None => return Ok(fallback.clone()),
        }
    }
    Ok(value)
}

fn no_map(step: usize, value: &Value) -> String {
    format!("step {} meets a {}, which is no map", step + 1, value.type_name())
}

pub fn kind_is(arguments: &[Value]) -> Answer {
    let [kind, value] = exactly(arguments)?;
    Ok(Value::Bool(text_of(kind)? == value.kind_name()))
}

pub fn lower(arguments: &[Value]) -> Answer {
    let [text] = exactly(arguments)?;
    Ok(Value::text(text_of(text)?.to_lowercase()))
}

/// `substr start end text`, in bytes; a negative start reads from the beginning and a negative end
/// to the end.
pub fn substr(arguments: &[Value]) -> Answer {
    let [start, end, text] = exactly(arguments)?;
    let (start, end, text) = (int_of(start)?, int_of(end)?, text_of(text)?);
    let length = text.len();
    let start = usize::try_from(start).unwrap_or(0);
    let end = usize::try_from(end).map_or(length, |end| end.min(length));
    let part = text.get(start..end);
    part.map(Value::text).ok_or_else(|| format!("there are no bytes {start} to {end} in it"))
}

/// `slice list start end`.
pub fn slice(arguments: &[Value]) -> Answer {
    let Some((list, bounds)) = arguments.split_first() else {
        return Err("it needs a list".to_string());
    };
    let Value::List(items) = list else { return Err(wanted("a list", list)) };
    if items.is_empty() {
        return Ok(Value::Nil);
    }
    let bound = |at: usize| bounds.get(at).map(counted);
    let start = bound(0).unwrap_or(0);
    let end = bound(1).unwrap_or(items.len() as i64);
    let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    let part = range.and_then(|(start, end)| items.get(start..end));
    part.map(|part| Value::list(part.to_vec()))
        .ok_or_else(|| format!("there are no elements {start} to {end} in it"))
}

pub fn join(arguments: &[Value]) -> Answer {
    let [separator, value] = exactly(arguments)?;
    let parts = match value {
        Value::Nil => Vec::new(),
        Value::List(items) => {
            items.iter().filter(|item| !matches!(item, Value::Nil)).map(shown).collect()
        }
        Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) | Value::Map(_) => {
            vec![shown(value)]
        }
    };
    Ok(Value::text(parts.join(text_of(separator)?)))
}

fn shown(value: &Value) -> String {
    let mut text = String::new();
    plain(value, &mut text, usize::MAX);
    text
}

pub fn int64(arguments: &[Value]) -> Answer {
    let [value] = exactly(arguments)?;
    Ok(Value::Int(counted(value)))
}

/// What is no number counts as zero.
fn counted(value: &Value) -> i64 {
    match value {
        Value::Int(number) => *number,
        Value::Float(number) => *number as i64,
        Value::Bool(flag) => i64::from(*flag),
        Value::Text(text) => text.parse().unwrap_or_default(),
        Value::Nil | Value::List(_) | Value::Map(_) => 0,
    }
}

pub fn div(arguments: &[Value]) -> Answer {
    let [a, b] = exactly(arguments)?;
    let quotient = counted(a).checked_div(counted(b));
    quotient.map(Value::Int).ok_or_else(|| "a division by zero".to_string())
}

/// Seconds as `3h25m45s`. Only integers and texts of integers count, as in sprig.
pub fn duration(arguments: &[Value]) -> Answer {
    let [value] = exactly(arguments)?;
    let seconds = match value {
        Value::Int(seconds) => *seconds,
        Value::Text(text) => text.parse().unwrap_or_default(),
        Value::Nil | Value::Bool(_) | Value::Float(_) | Value::List(_) | Value::Map(_) => 0,
    };
    let (sign, whole) = (if seconds < 0 { "-" } else { "" }, seconds.unsigned_abs());
    let (hours, minutes, rest) = (whole / 3600, whole / 60 % 60, whole % 60);
    Ok(Value::text(match (hours, minutes) {
        (0, 0) => format!("{sign}{rest}s"),
        (0, _) => format!("{sign}{minutes}m{rest}s"),
        (_, _) => format!("{sign}{hours}h{minutes}m{rest}s"),
    }))
}

/// What is no JSON gives nil, as in sprig.
pub fn from_json_text(arguments: &[Value]) -> Answer {
    let [text] = exactly(arguments)?;
    let parsed: Option<Json> = serde_json::from_str(text_of(text)?).ok();
    Ok(parsed.as_ref().map_or(Value::Nil, from_json))
}

pub fn to_json(arguments: &[Value]) -> Answer {
    let [value] = exactly(arguments)?;
    let mut out = String::new();
    write_json(value, None, 0, &mut out);
    Ok(Value::text(out))
}

pub fn to_pretty_json(arguments: &[Value]) -> Answer {
    let [value] = exactly(arguments)?;
    let mut out = String::new();
    write_json(value, Some("  "), 0, &mut out);
    Ok(Value::text(out))
}

fn write_json(value: &Value, indent: Option<&str>, depth: usize, out: &mut String) {
    let newline = |out: &mut String, depth: usize| {
        if let Some(indent) = indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    };
    match value {
        Value::Nil => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Int(number) => out.push_str(&number.to_string()),
        Value::Float(number) => out.push_str(&json_number(*number)),
        Value::Text(text) => json_text(text, out),
        Value::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                newline(out, depth + 1);
                write_json(item, indent, depth + 1, out);
            }
            if !items.is_empty() {
                newline(out, depth);
            }
            out.push(']');
        }
        Value::Map(entries) => {
            let entries = entries.borrow();
            out.push('{');
            for (at, (key, item)) in entries.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                newline(out, depth + 1);
                json_text(key, out);
                out.push_str(if indent.is_some() { ": " } else { ":" });
                write_json(item, indent, depth + 1, out);
            }
            if !entries.is_empty() {
                newline(out, depth);
            }
            out.push('}');
        }
    }
}

/// Go's JSON uses an exponent only below 1e-6 and from 1e21 on.
fn json_number(number: f64) -> String {
    if number == 0.0 {
        return if number.is_sign_negative() { "-0" } else { "0" }.to_string();
    }
    let (digits, exponent) = shortest(number);
    if (-6..21).contains(&exponent) {
        return decimal(number, &digits, exponent);
    }
    let text = scientific(number, &digits, exponent, 'e');
    // `1e-07` becomes `1e-7` there.
    text.replace("e-0", "e-")
}

/// Go escapes what could end a script in HTML, and so do the texts that depend on it.
fn json_text(text: &str, out: &mut String) {
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
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}
