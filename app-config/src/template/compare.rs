//! Comparing as Go's templates do: like with like, and an error otherwise.
use std::cmp::Ordering;

use super::{functions::exactly, value::Value};

const INCOMPATIBLE: &str = "values of different types cannot be compared";
const INCOMPARABLE: &str = "values of this type cannot be compared";

/// Whether the first equals any of the others.
pub fn eq(arguments: &[Value]) -> Result<Value, String> {
    let Some((first, others)) = arguments.split_first() else {
        return Err("it needs two arguments".to_string());
    };
    if others.is_empty() {
        return Err("it needs something to compare with".to_string());
    }
    for other in others {
        if equal(first, other)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn equal(a: &Value, b: &Value) -> Result<bool, String> {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        (Value::Int(a), Value::Int(b)) => Ok(a == b),
        (Value::Float(a), Value::Float(b)) => Ok(a == b),
        (Value::Text(a), Value::Text(b)) => Ok(a == b),
        (Value::Nil, Value::Nil) => Ok(true),
        (Value::Nil, _) | (_, Value::Nil) => Ok(false),
        (Value::List(_) | Value::Map(_), Value::List(_) | Value::Map(_)) => {
            Err(INCOMPARABLE.into())
        }
        (_, _) => Err(INCOMPATIBLE.into()),
    }
}

pub fn ne(arguments: &[Value]) -> Result<Value, String> {
    let [a, b] = exactly(arguments)?;
    Ok(Value::Bool(!equal(a, b)?))
}

pub fn lt(arguments: &[Value]) -> Result<Value, String> {
    ordered(arguments, Ordering::is_lt)
}

pub fn le(arguments: &[Value]) -> Result<Value, String> {
    ordered(arguments, Ordering::is_le)
}

pub fn gt(arguments: &[Value]) -> Result<Value, String> {
    ordered(arguments, Ordering::is_gt)
}

pub fn ge(arguments: &[Value]) -> Result<Value, String> {
    ordered(arguments, Ordering::is_ge)
}

fn ordered(arguments: &[Value], holds: fn(Ordering) -> bool) -> Result<Value, String> {
    let [a, b] = exactly(arguments)?;
    let order = match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        // No JSON number is a NaN.
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        (
            Value::Int(_) | Value::Float(_) | Value::Text(_),
            Value::Int(_) | Value::Float(_) | Value::Text(_),
        ) => {
            return Err(INCOMPATIBLE.into());
        }
        (_, _) => return Err(INCOMPARABLE.into()),
    };
    Ok(Value::Bool(holds(order)))
}
