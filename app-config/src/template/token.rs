//! Tokens of what stands between braces.

#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    pub kind: TokenKind,
    pub at: usize,
    pub end: usize,
    /// `.a .b` is two operands, `.a.b` is one.
    pub spaced: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum TokenKind {
    /// `.name`
    Field(String),
    /// `$` or `$name`
    Variable(String),
    /// A function or a keyword.
    Word(String),
    Text(String),
    Int(i64),
    Float(f64),
    Dot,
    Pipe,
    Open,
    Close,
    Declare,
    Assign,
    Comma,
}

/// A text is a row of these.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    Text(String),
    Action { tokens: Vec<Token>, at: usize },
}
