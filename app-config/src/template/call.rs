//! Calling a function: evaluates its arguments, watches what they cost, names it in errors.
use super::{Fault, ast::Operand, eval::Run, functions, value::Value};

/// The largest text a function may make.
const LARGEST_BYTES: usize = 8 << 20;
/// How deep values that a template builds may nest.
const DEEPEST: usize = 64;

pub fn call<'t>(
    run: &mut Run<'t>,
    name: &str,
    function: &'t Operand,
    operands: &'t [Operand],
    piped: Option<Value>,
    dot: &Value,
) -> Result<Value, Fault> {
    let at = function.at;
    if name == "and" || name == "or" {
        return either(run, name, at, operands, piped, dot);
    }
    let mut arguments = Vec::with_capacity(operands.len() + 1);
    for operand in operands {
        arguments.push(run.operand(operand, dot)?);
    }
    arguments.extend(piped);
    run.spend(1, at)?;
    if functions::copies(name) {
        for argument in &arguments {
            measure(run, argument, 0, at)?;
        }
    }
    let read = operands.iter().find(|operand| !operand.fields.is_empty());
    let variable = read.map(|operand| run.written(operand));
    let result = functions::apply(name, &arguments)
        .map_err(|why| run.fault(at, format!("`{name}`: {why}"), variable.clone()))?;
    match &result {
        Value::Text(text) if text.len() > LARGEST_BYTES => {
            let message = format!("`{name}`: the text is larger than {LARGEST_BYTES} bytes");
            Err(run.fault(at, message, variable))
        }
        Value::Text(_) | Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            Ok(result)
        }
        Value::List(_) | Value::Map(_) => Ok(result),
    }
}

/// `and` and `or` give back an operand, and do not look at those behind the one that decides.
fn either<'t>(
    run: &mut Run<'t>,
    name: &str,
    at: usize,
    operands: &'t [Operand],
    piped: Option<Value>,
    dot: &Value,
) -> Result<Value, Fault> {
    let decides = name == "or";
    let mut last = None;
    for operand in operands {
        let value = run.operand(operand, dot)?;
        if value.is_true() == decides {
            return Ok(value);
        }
        last = Some(value);
    }
    piped
        .or(last)
        .ok_or_else(|| run.fault(at, format!("`{name}` needs at least one argument"), None))
}

/// Pays for walking a value, and refuses one that nests too deep to be walked.
fn measure(run: &mut Run<'_>, value: &Value, depth: usize, at: usize) -> Result<(), Fault> {
    if depth >= DEEPEST {
        return Err(run.fault(at, format!("values nest deeper than {DEEPEST}"), None));
    }
    match value {
        Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Float(_) => run.spend(1, at),
        Value::Text(text) => run.spend(1 + text.len() as u64 / 16, at),
        Value::List(items) => {
            run.spend(1, at)?;
            items.iter().try_for_each(|item| measure(run, item, depth + 1, at))
        }
        Value::Map(entries) => {
            run.spend(1, at)?;
            entries.borrow().values().try_for_each(|item| measure(run, item, depth + 1, at))
        }
    }
}
