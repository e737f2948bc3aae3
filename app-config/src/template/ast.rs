//! The shape of a parsed template.
use std::collections::BTreeMap;

/// A parsed text and the templates it defines.
#[derive(Debug, Clone, Default)]
pub struct Parsed {
    pub body: Vec<Node>,
    pub defines: BTreeMap<String, Vec<Node>>,
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
}

#[derive(Debug, Clone)]
pub struct Pipe {
    /// Variables that it sets, with their `$`; two only in `range`.
    pub sets: Vec<String>,
    /// `=` rather than `:=`.
    pub assigns: bool,
    pub commands: Vec<Command>,
    pub at: usize,
}

/// A function or a value, and its arguments.
#[derive(Debug, Clone)]
pub struct Command {
    pub operands: Vec<Operand>,
    pub at: usize,
}

/// One operand: a base and the fields read from it. `at..end` is how it is written.
#[derive(Debug, Clone)]
pub struct Operand {
    pub base: Base,
    pub fields: Vec<String>,
    pub at: usize,
    pub end: usize,
}

#[derive(Debug, Clone)]
pub enum Base {
    Dot,
    /// With its `$`; the root is `$`.
    Variable(String),
    Function(String),
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    Nil,
    Paren(Box<Pipe>),
}
