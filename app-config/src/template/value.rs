//! Values while a template is rendered. Numbers of the state are floats, as Go reads JSON; only
//! literals and counting functions give integers, and the two never compare equal.
use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use serde_json::Value as Json;

#[derive(Debug, Clone)]
pub enum Value {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Rc<str>),
    List(Rc<Vec<Value>>),
    /// Shared and mutable, because `set` changes a map in place.
    Map(Rc<RefCell<BTreeMap<String, Value>>>),
}

impl Value {
    pub fn text(text: impl AsRef<str>) -> Value {
        Value::Text(Rc::from(text.as_ref()))
    }

    pub fn list(items: Vec<Value>) -> Value {
        Value::List(Rc::new(items))
    }

    pub fn map(entries: BTreeMap<String, Value>) -> Value {
        Value::Map(Rc::new(RefCell::new(entries)))
    }

    /// What counts as true: everything but nil, false, zero and the empty.
    pub fn is_true(&self) -> bool {
        match self {
            Value::Nil => false,
            Value::Bool(flag) => *flag,
            Value::Int(number) => *number != 0,
            Value::Float(number) => *number != 0.0,
            Value::Text(text) => !text.is_empty(),
            Value::List(items) => !items.is_empty(),
            Value::Map(entries) => !entries.borrow().is_empty(),
        }
    }

    /// The name of its Go type, as errors and `%T` say it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Nil => "<nil>",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float64",
            Value::Text(_) => "string",
            Value::List(_) => "[]interface {}",
            Value::Map(_) => "map[string]interface {}",
        }
    }

    /// The name that `kindIs` compares with.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Value::Nil => "invalid",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float64",
            Value::Text(_) => "string",
            Value::List(_) => "slice",
            Value::Map(_) => "map",
        }
    }
}

/// A JSON value as templates see it.
pub fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => Value::Float(number.as_f64().unwrap_or_default()),
        Json::String(text) => Value::text(text),
        Json::Array(items) => Value::list(items.iter().map(from_json).collect()),
        Json::Object(entries) => {
            Value::map(entries.iter().map(|(key, item)| (key.clone(), from_json(item))).collect())
        }
    }
}

/// The data of a template: the state, found under `nuon` and under `stead`.
pub fn state(json: &Json) -> Value {
    let data = from_json(json);
    if let Value::Map(entries) = &data {
        let mut entries = entries.borrow_mut();
        let (nuon, stead) = (entries.get("nuon").cloned(), entries.get("stead").cloned());
        match (nuon, stead) {
            (Some(state), None) => entries.insert("stead".into(), state),
            (None, Some(state)) => entries.insert("nuon".into(), state),
            (Some(_), Some(_)) | (None, None) => None,
        };
    }
    data
}
