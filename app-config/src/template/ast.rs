//! Syntax tree of a template.
use std::{collections::BTreeMap, sync::Arc};

use super::functions::Function;

/// A parsed text and the templates it defines.
#[derive(Debug, Clone, Default)]
pub struct Parsed {
    pub body: Vec<Node>,
    pub defines: BTreeMap<String, Vec<Node>>,
    /// True if the template may change a map in place.
    pub changes: bool,
}

#[derive(Debug, Clone)]
pub enum Node {
    Text(String),
    /// Prints the value, unless the pipeline declares or assigns a variable.
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
    /// Variables that the pipeline sets, with their `$`. Two are possible only in `range`.
    pub sets: Vec<Arc<str>>,
    /// True for `=`, false for `:=`.
    pub assigns: bool,
    pub commands: Vec<Command>,
    pub at: usize,
}

/// A function or a value with its arguments.
#[derive(Debug, Clone)]
pub struct Command {
    pub operands: Vec<Operand>,
}

/// An operand: a base and the fields read from it. `start..end` is the range of the operand in the
/// source.
#[derive(Debug, Clone)]
pub struct Operand {
    pub base: Base,
    pub fields: Vec<Arc<str>>,
    /// Offset for errors. As in Go, the offset of the first field after the first token. Without
    /// such a field, the offset of that token or of the pipeline in parentheses.
    pub at: usize,
    /// Offset of the base.
    pub start: usize,
    pub end: usize,
}

#[derive(Debug, Clone)]
pub enum Base {
    Dot,
    /// Variable with its `$`. The root is `$`.
    Variable(Arc<str>),
    Function(&'static Function),
    Text(Arc<str>),
    Number(Number),
    Bool(bool),
    Nil,
    Paren(Box<Pipe>),
}

/// A number literal. It takes the type that its position requires, if possible.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number {
    /// Integer value. `None` if the number has a fraction or is too large.
    pub int: Option<i64>,
    pub float: f64,
    /// True if the literal is written as a float. Where any type is allowed, it is then a float.
    pub is_float: bool,
}
