//! Functions of Go's own template package.
use super::{format, functions::Answer, value::Value};

pub fn not(arguments: &[Value], _: usize) -> Answer {
    Ok(Value::Bool(!arguments.iter().any(Value::is_true)))
}

pub fn len(arguments: &[Value], _: usize) -> Answer {
    let length = match arguments {
        [Value::Text(text)] => text.len(),
        [Value::List(items)] => items.len(),
        [Value::Map(entries)] => entries.borrow().len(),
        others => return Err(wrong_type("a string, a list or a map", others.first())),
    };
    Ok(Value::Int(length as i64))
}

pub fn wrong_type(what: &str, value: Option<&Value>) -> String {
    format!("requires {what}, but the value has type {}", value.unwrap_or(&Value::Nil).type_name())
}

/// `index x 1 "a"` is `x[1]["a"]`. A missing key of a map gives nil instead of an error.
pub fn index(arguments: &[Value], _: usize) -> Answer {
    let Some((first, keys)) = arguments.split_first() else {
        return Err("requires a value to read from".to_string());
    };
    let mut value = first.clone();
    if value.is_nil() {
        return Err(wrong_type("a list or a map", Some(&value)));
    }
    for key in keys {
        value = match (&value, key) {
            (Value::Map(entries), Value::Text(key)) => {
                entries.borrow().get(key).map_or(Value::Null, Value::to_element)
            }
            (Value::Map(_), key) => return Err(wrong_type("a string as key", Some(key))),
            (Value::List(items), key) => {
                let at = place(key)?;
                items
                    .get(at)
                    .map(Value::to_element)
                    .ok_or_else(|| format!("element {at} does not exist"))?
            }
            (Value::Text(text), key) => {
                let at = place(key)?;
                let byte = text.as_bytes().get(at);
                Value::Byte(*byte.ok_or_else(|| format!("byte {at} does not exist"))?)
            }
            (value, _) => return Err(wrong_type("a list or a map", Some(value))),
        };
    }
    Ok(value)
}

fn place(key: &Value) -> Result<usize, String> {
    let at = key.whole().ok_or_else(|| wrong_type("an integer", Some(key)))?;
    usize::try_from(at).map_err(|_| format!("element {at} does not exist"))
}

/// Number of spaces for `indent`.
pub fn spaces(given: i64) -> Result<u32, String> {
    const MAX: u32 = 1_000;
    let spaces = u32::try_from(given).ok().filter(|spaces| *spaces <= MAX);
    spaces.ok_or_else(|| format!("the number of spaces must be between 0 and {MAX}"))
}

/// Always fails, because templates have no function values to call.
pub fn call(arguments: &[Value], _: usize) -> Answer {
    Err(wrong_type("a function", arguments.first()))
}

pub fn print(arguments: &[Value], most: usize) -> Answer {
    Ok(Value::text(format::sprint(arguments, most)))
}

pub fn println(arguments: &[Value], most: usize) -> Answer {
    let mut out = String::new();
    for (at, value) in arguments.iter().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        format::plain(value, &mut out, most);
    }
    out.push('\n');
    Ok(Value::text(out))
}
