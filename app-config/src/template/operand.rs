//! Evaluates pipelines, commands, operands and fields.
use std::sync::Arc;

use super::{
    Fault,
    ast::{Base, Command, Operand, Pipe},
    eval::Run,
    secret::inspected,
    value::Value,
};

impl<'t> Run<'t> {
    pub fn pipe(&mut self, pipe: &'t Pipe, dot: &Value) -> Result<Value, Fault> {
        self.position = pipe.at;
        let mut value = None;
        for command in &pipe.commands {
            value = Some(self.command(command, value, dot)?.into_pipeline());
        }
        let value = value.unwrap_or(Value::Nil);
        for name in &pipe.sets {
            if pipe.assigns {
                self.set(name, value.clone())?;
            } else {
                self.declare(name, value.clone());
            }
        }
        Ok(value)
    }

    fn command(
        &mut self,
        command: &'t Command,
        piped: Option<Value>,
        dot: &Value,
    ) -> Result<Value, Fault> {
        let Some((first, rest)) = command.operands.split_first() else {
            return Err(self.wrong("a value is missing"));
        };
        if let (Base::Function(function), true) = (&first.base, first.fields.is_empty()) {
            self.position = first.at;
            return self.call(function, first.at, rest, piped, dot);
        }
        let has_arguments = !rest.is_empty() || piped.is_some();
        // Like Go, reads the fields of a chain first. Only then is an argument an error.
        let is_pipeline = matches!(first.base, Base::Paren(_)) && first.fields.is_empty();
        if has_arguments && !is_pipeline {
            self.position = first.at;
            if first.fields.is_empty() {
                return Err(self.no_function(first));
            }
        } else if has_arguments {
            return Err(self.no_function(first));
        }
        if matches!(first.base, Base::Nil) {
            self.position = first.at;
            return Err(self.wrong("nil cannot be used as a command"));
        }
        self.value(first, dot, has_arguments)
    }

    fn no_function(&self, operand: &Operand) -> Fault {
        let written = self.written(operand);
        let mut fault = self.wrong(format!("{written} is not a function and takes no arguments"));
        fault.variable = Some(written);
        fault
    }

    /// Value of an operand. `has_arguments` is true if arguments follow the operand. Only functions
    /// accept arguments.
    pub fn value(
        &mut self,
        operand: &'t Operand,
        dot: &Value,
        has_arguments: bool,
    ) -> Result<Value, Fault> {
        self.budget.spend(1, operand.at)?;
        let base = match &operand.base {
            Base::Dot => {
                self.position = operand.at;
                if operand.fields.is_empty() {
                    return Ok(dot.clone());
                }
                return self.fields(dot, operand, has_arguments);
            }
            Base::Variable(name) => {
                self.position = operand.at;
                self.get(name)?
            }
            Base::Function(function) => {
                self.position = operand.start;
                self.call(function, operand.start, &[], None, dot)?
            }
            Base::Text(text) => {
                self.position = operand.at;
                Value::Text(Arc::clone(text))
            }
            Base::Number(number) => {
                self.position = operand.at;
                match number.int {
                    Some(int) if !number.is_float => Value::Int(int),
                    None if !number.is_float => {
                        return Err(self.wrong("this number is too large"));
                    }
                    Some(_) | None => Value::Float(number.float),
                }
            }
            Base::Bool(flag) => {
                self.position = operand.at;
                Value::Bool(*flag)
            }
            Base::Nil => Value::Nil,
            Base::Paren(pipe) => {
                // A variable that is declared in parentheses lives until the enclosing block ends.
                self.deeper()?;
                let value = self.pipe(pipe, dot)?;
                self.shallower();
                value
            }
        };
        if operand.fields.is_empty() {
            Ok(base)
        } else {
            self.fields(&base, operand, has_arguments)
        }
    }

    fn fields(
        &mut self,
        base: &Value,
        operand: &Operand,
        has_arguments: bool,
    ) -> Result<Value, Fault> {
        let mut value = base.clone();
        for (step, field) in operand.fields.iter().enumerate() {
            let last = step + 1 == operand.fields.len();
            let next = match &value {
                Value::Map(_) if has_arguments && last => return Err(self.no_function(operand)),
                Value::Map(entries) => entries.borrow().get(&**field).map(Value::to_element),
                Value::Nil | Value::Null | Value::Bool(_) | Value::Int(_) => None,
                Value::Int64(_) | Value::Byte(_) | Value::Float(_) => None,
                Value::Text(_) | Value::List(_) | Value::Secret(_) => None,
            };
            let Some(next) = next else {
                return Err(self.no_field(&value, field, operand));
            };
            value = next;
        }
        Ok(value)
    }

    fn no_field(&self, value: &Value, field: &str, operand: &Operand) -> Fault {
        let written = self.written(operand);
        let mut fault = self.wrong(if matches!(value, Value::Map(_)) {
            format!("{written}: {field:?} does not exist")
        } else if matches!(value, Value::Secret(_)) {
            inspected(&written)
        } else if value.is_nil() {
            format!("{written}: cannot read {field:?} from nil")
        } else {
            format!("{written}: cannot read {field:?} from a value of type {}", value.type_name())
        });
        fault.variable = Some(written);
        fault
    }
}
