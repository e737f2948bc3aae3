//! Formats values as Go does.
use std::fmt::Write as _;

use super::value::Value;

/// Formats a value like `%v`. Stops after `most` bytes, because a shared value can be long when
/// printed.
pub fn plain(value: &Value, out: &mut String, most: usize) {
    if out.len() > most {
        return;
    }
    match value {
        Value::Nil | Value::Null => out.push_str("<nil>"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        // Writing to a string never fails.
        Value::Int(number) | Value::Int64(number) => drop(write!(out, "{number}")),
        Value::Byte(byte) => drop(write!(out, "{byte}")),
        Value::Float(number) => out.push_str(&float(*number)),
        Value::Text(text) => out.push_str(text),
        // Callers reject it before.
        Value::Secret(_) => out.push_str("(sensitive)"),
        Value::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                plain(item, out, most);
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push_str("map[");
            for (at, (key, item)) in entries.borrow().iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                plain(item, out, most);
            }
            out.push(']');
        }
    }
}

/// `print`: adds a space between two operands unless one of them is a string.
pub fn sprint(arguments: &[Value], most: usize) -> String {
    let mut out = String::new();
    let is_text = |value: &Value| matches!(value, Value::Text(_));
    for (at, value) in arguments.iter().enumerate() {
        if at > 0 && !is_text(value) && !is_text(&arguments[at - 1]) {
            out.push(' ');
        }
        plain(value, &mut out, most);
    }
    out
}

/// A float with the fewest digits. Uses an exponent below 1e-4 and from 1e+06.
pub fn float(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return special(number);
    }
    let (digits, exponent) = shortest(number);
    if !(-4..6).contains(&exponent) {
        return scientific(number, &digits, exponent, 'e');
    }
    decimal(number, &digits, exponent)
}

pub fn special(number: f64) -> String {
    if number.is_nan() {
        "NaN".to_string()
    } else if number.is_infinite() {
        if number > 0.0 { "+Inf".to_string() } else { "-Inf".to_string() }
    } else if number.is_sign_negative() {
        "-0".to_string()
    } else {
        "0".to_string()
    }
}

/// Significant digits, and the exponent of the first one.
pub fn shortest(number: f64) -> (String, i32) {
    let text = format!("{:e}", number.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text.as_str(), "0"));
    (mantissa.replace('.', ""), exponent.parse().unwrap_or_default())
}

pub fn decimal(number: f64, digits: &str, exponent: i32) -> String {
    let sign = if number < 0.0 { "-" } else { "" };
    let point = exponent + 1;
    if point <= 0 {
        return format!("{sign}0.{}{digits}", "0".repeat(point.unsigned_abs() as usize));
    }
    let point = point as usize;
    if digits.len() <= point {
        return format!("{sign}{digits}{}", "0".repeat(point - digits.len()));
    }
    format!("{sign}{}.{}", &digits[..point], &digits[point..])
}

pub fn scientific(number: f64, digits: &str, exponent: i32, e: char) -> String {
    let sign = if number < 0.0 { "-" } else { "" };
    let (first, rest) = digits.split_at(1.min(digits.len()));
    let dot = if rest.is_empty() { "" } else { "." };
    let (direction, size) = (if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs());
    format!("{sign}{first}{dot}{rest}{e}{direction}{size:02}")
}
