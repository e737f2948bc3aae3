//! Tokens with their offsets.

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Token<'s> {
    pub kind: Kind,
    /// Source text. For an error token, the error message.
    pub text: &'s str,
    pub at: usize,
}

impl Token<'_> {
    pub fn end(&self) -> usize {
        self.at + self.text.len()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text outside of braces.
    Text,
    /// `{{`
    Left,
    /// `}}`
    Right,
    Space,
    /// `.name`
    Field,
    /// `$` or `$name`
    Variable,
    /// Name of a function.
    Word,
    Keyword,
    Bool,
    Nil,
    Dot,
    /// `"…"`
    Quoted,
    /// `` `…` ``
    Raw,
    /// `'c'`
    Character,
    Number,
    Pipe,
    Open,
    Close,
    /// `:=`
    Declare,
    /// `=`
    Assign,
    Comma,
    /// Any other printable character. The parser rejects it.
    Other,
    End,
    Error,
}
