//! JSON as Go reads and writes it.
use domain::go_text::json_string;
use serde_json::Value as Json;

use super::{
    format::{decimal, scientific, shortest},
    functions::Answer,
    value::{Value, from_json},
};

/// Invalid JSON gives nil, as in sprig.
pub fn read(arguments: &[Value], _: usize) -> Answer {
    let [Value::Text(text)] = arguments else { return Err("requires a string".to_string()) };
    let parsed: Option<Json> = serde_json::from_str(text).ok();
    Ok(parsed.as_ref().map_or(Value::Nil, from_json))
}

pub fn write(arguments: &[Value], most: usize) -> Answer {
    Ok(Value::text(written(arguments, None, most)))
}

pub fn write_pretty(arguments: &[Value], most: usize) -> Answer {
    Ok(Value::text(written(arguments, Some("  "), most)))
}

fn written(arguments: &[Value], indent: Option<&str>, most: usize) -> String {
    let mut writer = Writer { out: String::new(), indent, most };
    if let Some(value) = arguments.first() {
        writer.value(value, 0);
    }
    writer.out
}

struct Writer<'i> {
    out: String,
    indent: Option<&'i str>,
    most: usize,
}

impl Writer<'_> {
    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            self.out.push_str(&indent.repeat(depth));
        }
    }

    fn value(&mut self, value: &Value, depth: usize) {
        if self.out.len() > self.most {
            return;
        }
        match value {
            Value::Nil | Value::Null => self.out.push_str("null"),
            Value::Bool(flag) => self.out.push_str(if *flag { "true" } else { "false" }),
            Value::Int(number) | Value::Int64(number) => self.out.push_str(&number.to_string()),
            Value::Byte(byte) => self.out.push_str(&byte.to_string()),
            Value::Float(number) => self.out.push_str(&number_text(*number)),
            Value::Text(text) => json_string(text, &mut self.out),
            // Callers reject it before.
            Value::Secret(_) => self.out.push_str("null"),
            Value::List(items) => {
                self.out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        self.out.push(',');
                    }
                    self.line(depth + 1);
                    self.value(item, depth + 1);
                }
                if !items.is_empty() {
                    self.line(depth);
                }
                self.out.push(']');
            }
            Value::Map(entries) => {
                let entries = entries.borrow();
                self.out.push('{');
                for (at, (key, item)) in entries.iter().enumerate() {
                    if at > 0 {
                        self.out.push(',');
                    }
                    self.line(depth + 1);
                    json_string(key, &mut self.out);
                    self.out.push_str(if self.indent.is_some() { ": " } else { ":" });
                    self.value(item, depth + 1);
                }
                if !entries.is_empty() {
                    self.line(depth);
                }
                self.out.push('}');
            }
        }
    }
}

/// Go's JSON uses an exponent only below 1e-6 and from 1e21.
fn number_text(number: f64) -> String {
    if number == 0.0 {
        return if number.is_sign_negative() { "-0" } else { "0" }.to_string();
    }
    let (digits, exponent) = shortest(number);
    if (-6..21).contains(&exponent) {
        return decimal(number, &digits, exponent);
    }
    // Go's JSON writes `1e-7` instead of `1e-07`.
    scientific(number, &digits, exponent, 'e').replace("e-0", "e-")
}
