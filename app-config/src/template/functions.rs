//! The functions of templates, by name. Those of Go itself are here; those of sprig in `sprig`.
use super::{compare, format, printf::printf, sprig, value::Value};

/// A function of evaluated arguments.
type Function = fn(&[Value]) -> Result<Value, String>;

fn find(name: &str) -> Option<Function> {
    Some(match name {
        "eq" => compare::eq,
        "ge" => compare::ge,
        "gt" => compare::gt,
        "index" => index,
        "le" => compare::le,
        "len" => len,
        "lt" => compare::lt,
        "ne" => compare::ne,
        "not" => not,
        "print" => |arguments| Ok(Value::text(format::sprint(arguments))),
        "printf" => printf_function,
        "append" => sprig::append,
        "coalesce" => sprig::coalesce,
        "default" => sprig::default,
        "dict" => sprig::dict,
        "dig" => sprig::dig,
        "div" => sprig::div,
        "duration" => sprig::duration,
        "fromJson" => sprig::from_json_text,
        "int64" => sprig::int64,
        "join" => sprig::join,
        "kindIs" => sprig::kind_is,
        "list" => |arguments| Ok(Value::list(arguments.to_vec())),
        "lower" => sprig::lower,
        "set" => sprig::set,
        "slice" => sprig::slice,
        "substr" => sprig::substr,
        "ternary" => sprig::ternary,
        "toJson" => sprig::to_json,
        "toPrettyJson" => sprig::to_pretty_json,
        "values" => sprig::values,
        _ => return None,
    })
}

pub fn is_known(name: &str) -> bool {
    // These two do not evaluate all of their arguments; see `call`.
    matches!(name, "and" | "or") || find(name).is_some()
}

/// Whether the function walks or copies its arguments, which then have to be paid for.
pub fn copies(name: &str) -> bool {
    matches!(
        name,
        "append"
            | "dict"
            | "fromJson"
            | "join"
            | "list"
            | "lower"
            | "print"
            | "printf"
            | "set"
            | "slice"
            | "substr"
            | "toJson"
            | "toPrettyJson"
            | "values"
    )
}

pub fn apply(name: &str, arguments: &[Value]) -> Result<Value, String> {
    match find(name) {
        Some(function) => function(arguments),
        None => Err("there is no such function".to_string()),
    }
}

/// Exactly `N` arguments.
pub fn exactly<const N: usize>(arguments: &[Value]) -> Result<&[Value; N], String> {
    arguments.try_into().map_err(|_| format!("it takes {N} arguments, not {}", arguments.len()))
}

pub fn text_of(value: &Value) -> Result<&str, String> {
    match value {
        Value::Text(text) => Ok(text),
        Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            Err(wanted("a string", value))
        }
        Value::List(_) | Value::Map(_) => Err(wanted("a string", value)),
    }
}

pub fn int_of(value: &Value) -> Result<i64, String> {
    match value {
        Value::Int(number) => Ok(*number),
        Value::Nil | Value::Bool(_) | Value::Float(_) => Err(wanted("an integer", value)),
        Value::Text(_) | Value::List(_) | Value::Map(_) => Err(wanted("an integer", value)),
    }
}

pub fn wanted(what: &str, value: &Value) -> String {
    format!("it needs {what}, not a {}", value.type_name())
}

fn not(arguments: &[Value]) -> Result<Value, String> {
    let [value] = exactly(arguments)?;
    Ok(Value::Bool(!value.is_true()))
}

fn len(arguments: &[Value]) -> Result<Value, String> {
    let [value] = exactly(arguments)?;
    let length = match value {
        Value::Text(text) => text.len(),
        Value::List(items) => items.len(),
        Value::Map(entries) => entries.borrow().len(),
        Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            return Err(wanted("a string, a list or a map", value));
        }
    };
    Ok(Value::Int(length as i64))
}

/// `index x 1 "a"` is `x[1]["a"]`. A key that a map does not have gives nil, and is no error.
fn index(arguments: &[Value]) -> Result<Value, String> {
    let Some((first, keys)) = arguments.split_first() else {
        return Err("it needs a value to read from".to_string());
    };
    let mut value = first.clone();
    for key in keys {
        value = match &value {
            Value::Map(entries) => {
                entries.borrow().get(text_of(key)?).cloned().unwrap_or(Value::Nil)
            }
            Value::List(items) => {
                let at = int_of(key)?;
                let found = usize::try_from(at).ok().and_then(|at| items.get(at));
                found.cloned().ok_or_else(|| format!("there is no element {at}"))?
            }
            Value::Text(text) => {
                let at = int_of(key)?;
                let byte = usize::try_from(at).ok().and_then(|at| text.as_bytes().get(at));
                Value::Int(i64::from(*byte.ok_or_else(|| format!("there is no byte {at}"))?))
            }
            Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
                return Err(wanted("a list or a map", &value));
            }
        };
    }
    Ok(value)
}

fn printf_function(arguments: &[Value]) -> Result<Value, String> {
    let Some((form, rest)) = arguments.split_first() else {
        return Err("it needs a format".to_string());
    };
    Ok(Value::text(printf(text_of(form)?, rest)))
}
