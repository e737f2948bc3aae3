//! Escaping of the printed arguments for HTML, JavaScript and URLs.
use domain::go_text::{self, is_printed};

use super::{format, functions::Answer, value::Value};

/// Text of all arguments together. Nil prints as it does outside of functions.
fn text_of(arguments: &[Value], most: usize) -> String {
    let shown: Vec<Value> = arguments
        .iter()
        .map(|value| if value.is_nil() { Value::text("<no value>") } else { value.clone() })
        .collect();
    format::sprint(&shown, most)
}

pub fn html(arguments: &[Value], most: usize) -> Answer {
    let mut out = String::new();
    for c in text_of(arguments, most).chars() {
        match c {
            '\0' => out.push('\u{fffd}'),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c => out.push(c),
        }
    }
    Ok(Value::text(out))
}

pub fn js(arguments: &[Value], most: usize) -> Answer {
    let mut out = String::new();
    for c in text_of(arguments, most).chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\'' => out.push_str("\\'"),
            '"' => out.push_str("\\\""),
            '<' | '>' | '&' | '=' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c if c < ' ' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c if c.is_ascii() || is_printed(c) => out.push(c),
            c => out.push_str(&format!("\\u{:04X}", u32::from(c))),
        }
    }
    Ok(Value::text(out))
}

pub fn url_query(arguments: &[Value], most: usize) -> Answer {
    Ok(Value::text(go_text::url_query(&text_of(arguments, most))))
}
