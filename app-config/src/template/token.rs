//! Tokens, each with where it begins.

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Token<'s> {
    pub kind: Kind,
    /// As it is written; of an error, what is wrong.
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
    /// What stands outside of braces.
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
    /// A function.
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
    /// Another character that can be printed; it belongs nowhere.
    Other,
    End,
    Error,
}
