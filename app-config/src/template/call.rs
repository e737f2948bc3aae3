//! Calls a function. Checks the number and types of its arguments, and spends steps.
use std::sync::Arc;

use super::{
    Fault,
    ast::{Base, Number, Operand},
    eval::Run,
    functions::{Behavior, Function, Kind},
    secret,
    value::{Map, Value},
};

impl<'t> Run<'t> {
    pub fn call(
        &mut self,
        function: &'static Function,
        at: usize,
        operands: &'t [Operand],
        piped: Option<Value>,
        dot: &Value,
    ) -> Result<Value, Fault> {
        self.budget.spend(1, at)?;
        self.count(function, operands.len() + usize::from(piped.is_some()))?;
        if let Behavior::Choose { on } = function.does {
            return self.choose(on, operands, piped, dot);
        }
        let mut arguments = Vec::with_capacity(operands.len() + 1);
        for (index, operand) in operands.iter().enumerate() {
            arguments.push(self.argument(function.takes(index), operand, dot)?);
        }
        if let Some(piped) = piped {
            arguments.push(self.fitting(function.takes(operands.len()), piped)?);
        }
        // `set` adds its value one level below the map, and does not traverse the map.
        let (depth, walked) = match (function.name, arguments.split_first()) {
            ("set", Some((Value::Map(map), rest))) => (map.above() + 1, rest),
            (_, _) => (1, arguments.as_slice()),
        };
        for argument in walked {
            match argument {
                Value::Text(text) => self.budget.text(text.len(), at)?,
                Value::List(_) | Value::Map(_) if function.walks => {
                    self.budget.walk(argument, depth, at)?;
                }
                Value::List(_) | Value::Map(_) | Value::Nil | Value::Null => {}
                Value::Bool(_) | Value::Int(_) | Value::Int64(_) => {}
                Value::Byte(_) | Value::Float(_) | Value::Secret(_) => {}
            }
        }
        let Behavior::Call(body) = function.does else { return Ok(Value::Nil) };
        let most = self.budget.bytes;
        let result =
            secret::call(function.name, &arguments, most).unwrap_or_else(|| body(&arguments, most));
        if let Ok(Value::Text(text)) = &result {
            self.budget.text(text.len(), at)?;
        }
        let why = match result {
            Ok(Value::Text(text)) if text.len() > self.budget.bytes => {
                format!("the text exceeds the limit of {} bytes", self.budget.bytes)
            }
            Ok(result) => return Ok(result),
            Err(why) => why,
        };
        self.position = at;
        let mut fault = self.wrong(format!("`{}`: {why}", function.name));
        let read = operands.iter().find(|operand| !operand.fields.is_empty());
        fault.variable = read.map(|operand| self.written(operand));
        Err(fault)
    }

    fn count(&self, function: &Function, given: usize) -> Result<(), Fault> {
        let fixed = function.fixed.len();
        let expected = match function.rest {
            Some(_) if given < fixed => format!("at least {fixed}"),
            None if given != fixed => format!("{fixed}"),
            Some(_) | None => return Ok(()),
        };
        let name = function.name;
        Err(self.wrong(format!(
            "wrong number of arguments for `{name}`: got {given}, expected {expected}"
        )))
    }

    /// Evaluates `and` and `or`. They return an operand and skip the operands after it.
    fn choose(
        &mut self,
        on: bool,
        operands: &'t [Operand],
        piped: Option<Value>,
        dot: &Value,
    ) -> Result<Value, Fault> {
        let mut last = Value::Nil;
        for (index, operand) in operands.iter().enumerate() {
            last = self.argument(Kind::Any, operand, dot)?;
            // The last operand is the result, whatever its value is.
            if piped.is_none() && index + 1 == operands.len() {
                return Ok(last);
            }
            self.not_inspected(&last, "`and` or `or`")?;
            if last.is_true() == on {
                return Ok(last);
            }
        }
        Ok(piped.unwrap_or(last))
    }

    /// Evaluates an operand as an argument. A literal must have the required type and is not
    /// converted.
    fn argument(&mut self, kind: Kind, operand: &'t Operand, dot: &Value) -> Result<Value, Fault> {
        self.position = operand.at;
        if operand.fields.is_empty() {
            match (&operand.base, kind) {
                (Base::Text(_) | Base::Number(_) | Base::Bool(_), Kind::Any) => {}
                (Base::Text(text), Kind::Text) => return Ok(Value::Text(Arc::clone(text))),
                (Base::Bool(flag), Kind::Bool) => return Ok(Value::Bool(*flag)),
                (Base::Number(Number { int: Some(int), .. }), Kind::Int) => {
                    return Ok(Value::Int(*int));
                }
                (Base::Text(_) | Base::Number(_) | Base::Bool(_), _) => {
                    let written = self.written(operand);
                    return Err(
                        self.wrong(format!("the argument must be {}, not {written}", kind.name()))
                    );
                }
                (Base::Nil, Kind::Text | Kind::Int | Kind::Bool) => {
                    return Err(
                        self.wrong(format!("the argument must be {}, not nil", kind.name()))
                    );
                }
                (Base::Nil, Kind::Any | Kind::Map) => return self.fitting(kind, Value::Nil),
                (Base::Dot | Base::Variable(_) | Base::Function(_) | Base::Paren(_), _) => {}
            }
        }
        let value = self.value(operand, dot, false)?;
        self.fitting(kind, value)
    }

    fn fitting(&self, kind: Kind, value: Value) -> Result<Value, Fault> {
        let fits = match (kind, &value) {
            (Kind::Any, _) => true,
            // Nil counts as an empty, read-only map.
            (Kind::Map, Value::Nil) => return Ok(Value::Nil),
            (Kind::Map, Value::Map(_)) => true,
            (Kind::Text, Value::Text(_)) => true,
            (Kind::Int, Value::Int(_)) => true,
            (Kind::Bool, Value::Bool(_)) => true,
            (Kind::Map | Kind::Text | Kind::Int | Kind::Bool, _) => false,
        };
        if fits {
            return Ok(value);
        }
        let (expected, found) = (kind.name(), value.type_name());
        Err(self.wrong(format!("the argument must be {expected}, but has type {found}")))
    }
}

/// Entries of a map argument. Empty for other values.
pub fn entries(value: &Value) -> Map {
    match value {
        Value::Map(entries) => entries.borrow().clone(),
        Value::Nil | Value::Null | Value::Bool(_) | Value::Int(_) | Value::Int64(_) => Map::new(),
        Value::Byte(_) | Value::Float(_) | Value::Text(_) => Map::new(),
        Value::List(_) | Value::Secret(_) => Map::new(),
    }
}
