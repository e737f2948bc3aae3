//! Converts characters to tokens, one at a time. Text after an error is not scanned.
use super::token::{Kind, Token};

const OPEN: &str = "{{";
const CLOSE: &str = "}}";
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

pub struct Lexer<'s> {
    source: &'s str,
    at: usize,
    state: State,
    /// Number of open parentheses.
    open: usize,
}

#[derive(Clone, Copy)]
enum State {
    Text,
    /// The next characters are opening braces.
    Left,
    Action,
    Over,
}

impl<'s> Lexer<'s> {
    pub fn new(source: &'s str) -> Self {
        Lexer { source, at: 0, state: State::Text, open: 0 }
    }

    pub fn token(&mut self) -> Token<'s> {
        loop {
            let token = match self.state {
                State::Text => self.text(),
                State::Left => self.left(),
                State::Action => Some(self.action()),
                State::Over => Some(self.emit(Kind::End, self.at)),
            };
            if let Some(token) = token {
                return token;
            }
        }
    }

    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    /// Returns the token from the current position to `end`.
    fn emit(&mut self, kind: Kind, end: usize) -> Token<'s> {
        let at = std::mem::replace(&mut self.at, end);
        Token { kind, text: &self.source[at..end], at }
    }

    fn wrong(&mut self, why: &'static str) -> Token<'s> {
        self.state = State::Over;
        Token { kind: Kind::Error, text: why, at: self.at }
    }

    fn text(&mut self) -> Option<Token<'s>> {
        let rest = self.rest();
        let Some(length) = rest.find(OPEN) else {
            self.state = State::Over;
            return (!rest.is_empty()).then(|| self.emit(Kind::Text, self.source.len()));
        };
        self.state = State::Left;
        let mut text = &rest[..length];
        if marked(&rest[length + OPEN.len()..]) {
            text = text.trim_end_matches(SPACES);
        }
        let token = self.emit(Kind::Text, self.at + text.len());
        self.at = token.at + length;
        (!token.text.is_empty()).then_some(token)
    }

    fn left(&mut self) -> Option<Token<'s>> {
        let inside = &self.rest()[OPEN.len()..];
        let marker = if marked(inside) { 2 } else { 0 };
        if inside[marker..].starts_with("/*") {
            self.at += OPEN.len() + marker;
            return self.comment();
        }
        let token = self.emit(Kind::Left, self.at + OPEN.len());
        self.at += marker;
        self.open = 0;
        self.state = State::Action;
        Some(token)
    }

    fn comment(&mut self) -> Option<Token<'s>> {
        let Some(length) = self.rest()[2..].find("*/") else {
            return Some(self.wrong("this comment has no closing `*/`"));
        };
        let end = self.at + 2 + length + 2;
        let Some(trims) = closes(&self.source[end..]) else {
            let why = "a comment must end right before the closing braces";
            return Some(self.wrong(why));
        };
        self.at = end + if trims { 4 } else { 2 };
        self.skip_trimmed(trims);
        None
    }

    fn skip_trimmed(&mut self, trims: bool) {
        if trims {
            self.at = self.source.len() - self.rest().trim_start_matches(SPACES).len();
        }
        self.state = State::Text;
    }

    fn action(&mut self) -> Token<'s> {
        let rest = self.rest();
        if let Some(trims) = closes(rest) {
            if self.open > 0 {
                return self.wrong("a parenthesis has no closing `)`");
            }
            self.at += if trims { 2 } else { 0 };
            let token = self.emit(Kind::Right, self.at + CLOSE.len());
            self.skip_trimmed(trims);
            return token;
        }
        let mut chars = rest.chars();
        let Some(first) = chars.next() else {
            return self.wrong("this action has no closing `}}`");
        };
        let second = chars.next();
        let one = self.at + first.len_utf8();
        match first {
            c if SPACES.contains(&c) => self.space(),
            '=' => self.emit(Kind::Assign, one),
            ':' if second == Some('=') => self.emit(Kind::Declare, one + 1),
            ':' => self.wrong("`:` must be followed by `=`"),
            '|' => self.emit(Kind::Pipe, one),
            '"' => self.quoted('"', Kind::Quoted, "this string has no closing `\"`"),
            '\'' => {
                self.quoted('\'', Kind::Character, "this character constant has no closing `'`")
            }
            '`' => match rest[1..].find('`') {
                Some(length) => self.emit(Kind::Raw, one + length + 1),
                None => self.wrong("this string has no closing back quote"),
            },
            '$' => self.name(Kind::Variable, Kind::Variable),
            '.' if !second.is_some_and(|c| c.is_ascii_digit()) => self.name(Kind::Field, Kind::Dot),
            '.' | '+' | '-' | '0'..='9' => self.number(),
            c if is_word(c) => self.word(),
            '(' => {
                self.open += 1;
                self.emit(Kind::Open, one)
            }
            ')' if self.open == 0 => {
                self.wrong("this closing parenthesis has no opening parenthesis")
            }
            ')' => {
                self.open -= 1;
                self.emit(Kind::Close, one)
            }
            ',' => self.emit(Kind::Comma, one),
            '!'..='~' => self.emit(Kind::Other, one),
            _ => self.wrong("invalid character between braces"),
        }
    }

    /// Scans spaces, except the space that belongs to a ` -}}` trim marker.
    fn space(&mut self) -> Token<'s> {
        let rest = self.rest();
        let mut length = rest.len() - rest.trim_start_matches(SPACES).len();
        if length > 1 && closes(&rest[length - 1..]) == Some(true) {
            length -= 1;
        }
        self.emit(Kind::Space, self.at + length)
    }

    /// Scans a dot or dollar and the name after it.
    fn name(&mut self, named: Kind, alone: Kind) -> Token<'s> {
        let start = self.at + 1;
        if ends_a_name(&self.source[start..]) {
            return self.emit(alone, start);
        }
        let end = start + word(&self.source[start..]).len();
        if !ends_a_name(&self.source[end..]) {
            return self.wrong("invalid character in a name");
        }
        self.emit(named, end)
    }

    fn word(&mut self) -> Token<'s> {
        let word = word(self.rest());
        let end = self.at + word.len();
        if !ends_a_name(&self.source[end..]) {
            return self.wrong("invalid character in a name");
        }
        let kind = match word {
            "block" | "break" | "continue" | "define" | "else" | "end" | "if" | "range"
            | "template" | "with" => Kind::Keyword,
            "true" | "false" => Kind::Bool,
            "nil" => Kind::Nil,
            _ => Kind::Word,
        };
        self.emit(kind, end)
    }

    fn quoted(&mut self, quote: char, kind: Kind, open: &'static str) -> Token<'s> {
        let mut escaped = false;
        for (index, c) in self.rest().char_indices().skip(1) {
            match c {
                '\n' => break,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                c if c == quote => return self.emit(kind, self.at + index + 1),
                _ => {}
            }
        }
        self.wrong(open)
    }

    /// Scans a number. The parser validates it.
    fn number(&mut self) -> Token<'s> {
        let length = number(self.rest());
        let end = self.at + length;
        match self.source[end..].chars().next() {
            Some('+' | '-') => self.wrong("complex numbers are not supported"),
            Some(c) if is_word(c) => self.wrong("invalid number"),
            Some(_) | None => self.emit(Kind::Number, end),
        }
    }
}

fn number(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    let one = |at: &mut usize, of: &[u8]| {
        let found = bytes.get(*at).is_some_and(|byte| of.contains(byte));
        *at += usize::from(found);
        found
    };
    one(&mut at, b"+-");
    let mut digits: &[u8] = b"0123456789_";
    if one(&mut at, b"0") {
        if one(&mut at, b"xX") {
            digits = b"0123456789abcdefABCDEF_";
        } else if one(&mut at, b"oO") {
            digits = b"01234567_";
        } else if one(&mut at, b"bB") {
            digits = b"01_";
        }
    }
    while one(&mut at, digits) {}
    if one(&mut at, b".") {
        while one(&mut at, digits) {}
    }
    let exponent: &[u8] = match digits.len() {
        11 => b"eE",
        23 => b"pP",
        _ => b"",
    };
    if one(&mut at, exponent) {
        one(&mut at, b"+-");
        while one(&mut at, b"0123456789_") {}
    }
    one(&mut at, b"i");
    at
}

/// True if the text after opening braces starts with a trim marker: `-` and a space.
fn marked(rest: &str) -> bool {
    rest.strip_prefix('-').is_some_and(|rest| rest.starts_with(SPACES))
}

/// Returns `None` if `rest` does not begin with the end of the action. Otherwise, returns true if
/// the action trims the following text.
fn closes(rest: &str) -> Option<bool> {
    if rest.starts_with(CLOSE) {
        return Some(false);
    }
    rest.strip_prefix(SPACES).is_some_and(|rest| rest.starts_with("-}}")).then_some(true)
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn word(text: &str) -> &str {
    &text[..text.len() - text.trim_start_matches(is_word).len()]
}

/// True if the text after a name starts with a character that may end a name. `.a-b` is an error,
/// not a subtraction.
fn ends_a_name(rest: &str) -> bool {
    let Some(c) = rest.chars().next() else { return true };
    SPACES.contains(&c) || matches!(c, '.' | ',' | '|' | ':' | '(' | ')') || rest.starts_with(CLOSE)
}
