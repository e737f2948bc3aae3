//! Comparisons with the rules of Go's templates. Operands of different types are an error, except
//! integers of any type, and nil in `eq` and `ne`.
use std::cmp::Ordering;

use super::{functions::Answer, value::Value};

const INCOMPATIBLE: &str = "values of different types cannot be compared";
const INCOMPARABLE: &str = "values of this type cannot be compared";

/// True if the first argument equals any of the others.
pub fn eq(arguments: &[Value], _: usize) -> Answer {
    let Some((first, others)) = arguments.split_first() else {
        return Err("requires two arguments".to_string());
    };
    if others.is_empty() {
        return Err("requires an argument to compare with".to_string());
    }
    for other in others {
        if equal(first, other)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn equal(a: &Value, b: &Value) -> Result<bool, String> {
    if let (Some(a), Some(b)) = (a.whole(), b.whole()) {
        return Ok(a == b);
    }
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        (Value::Float(a), Value::Float(b)) => Ok(a == b),
        (Value::Text(a), Value::Text(b)) => Ok(a == b),
        (a, b) if a.is_nil() || b.is_nil() => Ok(a.is_nil() && b.is_nil()),
        (Value::List(_) | Value::Map(_), Value::List(_) | Value::Map(_)) => {
            Err(INCOMPARABLE.into())
        }
        (_, _) => Err(INCOMPATIBLE.into()),
    }
}

pub fn ne(arguments: &[Value], most: usize) -> Answer {
    Ok(Value::Bool(!eq(arguments, most)?.is_true()))
}

pub fn lt(arguments: &[Value], _: usize) -> Answer {
    ordered(arguments, |order| order == Some(Ordering::Less))
}

pub fn le(arguments: &[Value], _: usize) -> Answer {
    ordered(arguments, |order| matches!(order, Some(Ordering::Less | Ordering::Equal)))
}

/// Negation of `le`, as in Go. For NaN, it differs from a comparison with "greater".
pub fn gt(arguments: &[Value], _: usize) -> Answer {
    ordered(arguments, |order| !matches!(order, Some(Ordering::Less | Ordering::Equal)))
}

pub fn ge(arguments: &[Value], _: usize) -> Answer {
    ordered(arguments, |order| order != Some(Ordering::Less))
}

fn ordered(arguments: &[Value], holds: fn(Option<Ordering>) -> bool) -> Answer {
    let [a, b] = arguments else { return Err("requires two arguments".to_string()) };
    let order = match (a, b) {
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
        (a, b) => match (a.whole(), b.whole()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ if a.has_order() && b.has_order() => return Err(INCOMPATIBLE.into()),
            _ => return Err(INCOMPARABLE.into()),
        },
    };
    Ok(Value::Bool(holds(order)))
}

impl Value {
    fn has_order(&self) -> bool {
        self.whole().is_some() || matches!(self, Value::Float(_) | Value::Text(_))
    }
}
