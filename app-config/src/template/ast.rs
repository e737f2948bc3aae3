//! The shape of a parsed template.
use std::{collections::BTreeMap, sync::Arc};

use super::functions::Function;

/// A parsed text and the templates it defines.
#[derive(Debug, Clone, Default)]
pub struct Parsed {
    pub body: Vec<Node>,
    pub defines: BTreeMap<String, Vec<Node>>,
    /// Whether it may change a map in place.
    pub changes: bool,
}

#[derive(Debug, Clone)]
pub enum Node {
    Text(String),
    /// Prints its value, unless it declares or assigns.
    Output(Pipe),
    If {
        pipe: Pipe,
        body: Vec<Node>,
        otherwise: Vec<Node>,
    },
    With {
        pipe: Pipe,
        body: Vec<Node>,
        otherwise: Vec<Node>,
    },
    Range {
        pipe: Pipe,
        body: Vec<Node>,
        otherwise: Vec<Node>,
    },
    Call {
        name: String,
        pipe: Option<Pipe>,
        at: usize,
    },
    Break,
    Continue,
}

#[derive(Debug, Clone)]
pub struct Pipe {
    /// Variables that it sets, with their `$`; two only in `range`.
    pub sets: Vec<Arc<str>>,
    /// `=` rather than `:=`.
    pub assigns: bool,
    pub commands: Vec<Command>,
    pub at: usize,
}

/// A function or a value, and its arguments.
#[derive(Debug, Clone)]
pub struct Command {
    pub operands: Vec<Operand>,
}

/// One operand: a base and the fields read from it. `start..end` is how it is written.
#[derive(Debug, Clone)]
pub struct Operand {
    pub base: Base,
    pub fields: Vec<Arc<str>>,
    /// Where errors are said to be. Go points at the first field that follows something.
    pub at: usize,
    /// Where the base is.
    pub start: usize,
    pub end: usize,
}

#[derive(Debug, Clone)]
pub enum Base {
    Dot,
    /// With its `$`; the root is `$`.
    Variable(Arc<str>),
    Function(&'static Function),
    Text(Arc<str>),
    Number(Number),
    Bool(bool),
    Nil,
    Paren(Box<Pipe>),
}

/// A literal number is whatever the place it stands in needs, if it can be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number {
    /// None when it has a fraction or is too large.
    pub int: Option<i64>,
    pub float: f64,
    /// Written as a float, which it is where anything may stand.
    pub is_float: bool,
}
