//! Converts tokens to a tree. The parser also checks that functions and variables exist.
//!
//! Follows Go's parser token by token, with its lookahead, so that this parser and Go's report an
//! error at the same token.
use std::sync::Arc;

use super::{
    Fault,
    ast::{Node, Parsed, Pipe},
    lex::Lexer,
    literal,
    token::{Kind, Token},
};

/// Maximum nesting. Deeper nesting could overflow the stack.
pub const MAX_DEPTH: usize = 150;
pub const MAX_BYTES: usize = 4 << 20;
/// Name by which a text can call itself.
const MAIN: &str = "input";

pub fn parse(source: &str) -> Result<Parsed, Fault> {
    if source.len() > MAX_BYTES {
        return Err(Fault::parse(
            0,
            format!("the template is too large: the maximum is {MAX_BYTES} bytes"),
        ));
    }
    let none = Token { kind: Kind::End, text: "", at: 0 };
    let mut parser = Parser {
        lexer: Lexer::new(source),
        lookahead: [none; 3],
        waiting: 0,
        vars: root(),
        parsed: Parsed::default(),
        depth: 0,
        ranges: 0,
    };
    let body = parser.top()?;
    parser.define(MAIN.to_string(), body)?;
    let mut parsed = parser.parsed;
    parsed.body = parsed.defines.get(MAIN).cloned().unwrap_or_default();
    Ok(parsed)
}

fn root() -> Vec<Arc<str>> {
    vec![Arc::from("$")]
}

pub struct Parser<'s> {
    lexer: Lexer<'s>,
    /// Lookahead tokens. The first `waiting` of them are read again, in reverse order.
    lookahead: [Token<'s>; 3],
    waiting: usize,
    pub vars: Vec<Arc<str>>,
    pub parsed: Parsed,
    pub depth: usize,
    /// Number of enclosing `range` blocks.
    ranges: usize,
}

/// Keyword that closed a list of nodes.
enum Closing {
    Done,
    /// `else`. If an `if` or `with` follows, it belongs to the same `end`.
    Else,
}

impl<'s> Parser<'s> {
    pub fn next(&mut self) -> Token<'s> {
        if self.waiting > 0 {
            self.waiting -= 1;
        } else {
            self.lookahead[0] = self.lexer.token();
        }
        self.lookahead[self.waiting]
    }

    pub fn backup(&mut self) {
        self.waiting += 1;
    }

    /// Puts back `token` and the peeked token after it.
    pub fn backup_two(&mut self, token: Token<'s>) {
        self.lookahead[1] = token;
        self.waiting = 2;
    }

    /// Puts back two tokens and the peeked token after them.
    pub fn backup_three(&mut self, first: Token<'s>, second: Token<'s>) {
        self.lookahead[1] = second;
        self.lookahead[2] = first;
        self.waiting = 3;
    }

    pub fn peek(&mut self) -> Token<'s> {
        if self.waiting > 0 {
            return self.lookahead[self.waiting - 1];
        }
        self.waiting = 1;
        self.lookahead[0] = self.lexer.token();
        self.lookahead[0]
    }

    pub fn next_word(&mut self) -> Token<'s> {
        loop {
            let token = self.next();
            if token.kind != Kind::Space {
                return token;
            }
        }
    }

    pub fn peek_word(&mut self) -> Token<'s> {
        let token = self.next_word();
        self.backup();
        token
    }

    pub fn last_end(&self) -> usize {
        self.lookahead[0].end()
    }

    /// Error at the last token.
    pub fn wrong(&self, why: impl Into<String>) -> Fault {
        Fault::parse(self.lookahead[0].at, why)
    }

    pub fn unexpected(&self, token: Token<'s>, place: &str) -> Fault {
        self.wrong(if token.kind == Kind::Error {
            token.text.to_string()
        } else if token.kind == Kind::End {
            format!("the text ends in {place}")
        } else if token.kind == Kind::Right {
            format!("unexpected closing braces in {place}")
        } else {
            format!("unexpected {:?} in {place}", shortened(token.text))
        })
    }

    fn expect(&mut self, kind: Kind, place: &str) -> Result<Token<'s>, Fault> {
        let token = self.next_word();
        if token.kind == kind { Ok(token) } else { Err(self.unexpected(token, place)) }
    }

    /// Enters a nesting level. Fails at the maximum, before the stack overflows.
    pub fn deeper(&mut self) -> Result<(), Fault> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.wrong(format!("nesting exceeds the limit of {MAX_DEPTH} levels")));
        }
        Ok(())
    }

    fn top(&mut self) -> Result<Vec<Node>, Fault> {
        let mut nodes = Vec::new();
        while self.peek().kind != Kind::End {
            if self.peek().kind == Kind::Left {
                let left = self.next();
                let word = self.next_word();
                if word.kind == Kind::Keyword && word.text == "define" {
                    self.definition()?;
                    continue;
                }
                self.backup_two(left);
            }
            match self.node()? {
                Ok(node) => nodes.push(node),
                Err(Closing::Done) => return Err(self.wrong("`end` without a block")),
                Err(Closing::Else) => return Err(self.wrong("`else` without a block")),
            }
        }
        Ok(nodes)
    }

    /// Parses the nodes of an `opened` block. Returns them with the keyword that closed it.
    fn list(&mut self, opened: &str, at: usize) -> Result<(Vec<Node>, Closing), Fault> {
        let mut nodes = Vec::new();
        while self.peek_word().kind != Kind::End {
            match self.node()? {
                Ok(node) => nodes.push(node),
                Err(closing) => return Ok((nodes, closing)),
            }
        }
        let mut fault = self.wrong(format!("a `{opened}` has no `end`"));
        fault.opened = Some(at);
        Err(fault)
    }

    fn node(&mut self) -> Result<Result<Node, Closing>, Fault> {
        let token = self.next_word();
        if token.kind == Kind::Text {
            return Ok(Ok(Node::Text(token.text.to_string())));
        }
        if token.kind == Kind::Left {
            return self.action();
        }
        Err(self.unexpected(token, "the text"))
    }

    fn action(&mut self) -> Result<Result<Node, Closing>, Fault> {
        let token = self.next_word();
        if token.kind != Kind::Keyword {
            self.backup();
            return Ok(Ok(Node::Output(self.pipe("an action", Kind::Right)?)));
        }
        Ok(Ok(match token.text {
            "end" => {
                self.expect(Kind::Right, "`end`")?;
                return Ok(Err(Closing::Done));
            }
            "else" => {
                let next = self.peek_word();
                if next.kind != Kind::Keyword || !matches!(next.text, "if" | "with") {
                    self.expect(Kind::Right, "`else`")?;
                }
                return Ok(Err(Closing::Else));
            }
            "if" | "with" | "range" => self.control(token)?,
            "template" => self.call()?,
            "block" => self.block()?,
            "break" | "continue" => {
                let next = self.next_word();
                if next.kind != Kind::Right {
                    return Err(self.unexpected(next, "`break` or `continue`"));
                }
                if self.ranges == 0 {
                    return Err(self.wrong(format!("`{}` outside of a `range`", token.text)));
                }
                if token.text == "break" { Node::Break } else { Node::Continue }
            }
            _ => {
                return Err(
                    self.unexpected(token, "an action; `define` is allowed only at the top level")
                );
            }
        }))
    }

    fn control(&mut self, word: Token<'s>) -> Result<Node, Fault> {
        self.deeper()?;
        let outer = self.vars.len();
        let ranges = word.text == "range";
        let pipe = self.pipe(word.text, Kind::Right)?;
        self.ranges += usize::from(ranges);
        let (body, closing) = self.list(word.text, word.at)?;
        self.ranges -= usize::from(ranges);
        let otherwise = match closing {
            Closing::Done => Vec::new(),
            Closing::Else => self.otherwise(word)?,
        };
        self.vars.truncate(outer);
        self.depth -= 1;
        Ok(match word.text {
            "if" => Node::If { pipe, body, otherwise },
            "with" => Node::With { pipe, body, otherwise },
            _ => Node::Range { pipe, body, otherwise },
        })
    }

    fn otherwise(&mut self, word: Token<'s>) -> Result<Vec<Node>, Fault> {
        let next = self.peek();
        // `else if`: parsing `else` left the `if` in place, and both share one `end`.
        if word.text != "range" && next.kind == Kind::Keyword && next.text == word.text {
            self.next();
            return Ok(vec![self.control(next)?]);
        }
        match self.list(word.text, word.at)? {
            (nodes, Closing::Done) => Ok(nodes),
            (_, Closing::Else) => Err(self.wrong("a second `else`")),
        }
    }

    fn definition(&mut self) -> Result<(), Fault> {
        let place = "`define`, which needs a name in quotes";
        let token = self.next_word();
        let name = self.name(token, place)?;
        self.expect(Kind::Right, place)?;
        let (body, closing) = self.separate("define", token.at)?;
        if matches!(closing, Closing::Else) {
            return Err(self.wrong("`define` cannot have an `else`"));
        }
        self.define(name, body)
    }

    /// Parses the body of a template, which does not see the variables around it.
    fn separate(&mut self, word: &str, at: usize) -> Result<(Vec<Node>, Closing), Fault> {
        self.deeper()?;
        let vars = std::mem::replace(&mut self.vars, root());
        let ranges = std::mem::take(&mut self.ranges);
        let closed = self.list(word, at)?;
        self.vars = vars;
        self.ranges = ranges;
        self.depth -= 1;
        Ok(closed)
    }

    /// Adds a template. If two templates have the same name, one of them must be blank, and the
    /// other one applies.
    fn define(&mut self, name: String, body: Vec<Node>) -> Result<(), Fault> {
        match self.parsed.defines.get(&name) {
            Some(known) if !is_blank(known) => {
                if is_blank(&body) {
                    return Ok(());
                }
                Err(self.wrong(format!("the template {name:?} is defined twice")))
            }
            Some(_) | None => {
                self.parsed.defines.insert(name, body);
                Ok(())
            }
        }
    }

    fn call(&mut self) -> Result<Node, Fault> {
        let token = self.next_word();
        let name = self.name(token, "`template`, which needs a name in quotes")?;
        let mut pipe = None;
        if self.next_word().kind != Kind::Right {
            self.backup();
            pipe = Some(self.pipe("`template`", Kind::Right)?);
        }
        Ok(Node::Call { name, pipe, at: token.at })
    }

    /// Parses a `block`: defines a template and calls it.
    fn block(&mut self) -> Result<Node, Fault> {
        let token = self.next_word();
        let name = self.name(token, "`block`, which needs a name in quotes")?;
        let pipe: Pipe = self.pipe("`block`", Kind::Right)?;
        let wrong = self.wrong("`block` cannot have an `else`");
        let (body, closing) = self.separate("block", token.at)?;
        if matches!(closing, Closing::Else) {
            return Err(wrong);
        }
        self.define(name.clone(), body)?;
        Ok(Node::Call { name, pipe: Some(pipe), at: token.at })
    }

    fn name(&mut self, token: Token<'s>, place: &str) -> Result<String, Fault> {
        if matches!(token.kind, Kind::Quoted | Kind::Raw) {
            return self.string(token);
        }
        Err(self.unexpected(token, place))
    }

    pub fn string(&self, token: Token<'s>) -> Result<String, Fault> {
        let inner = &token.text[1..token.text.len() - 1];
        if token.kind == Kind::Raw {
            return Ok(inner.replace('\r', ""));
        }
        literal::interpreted(inner).ok_or_else(|| self.wrong("unknown escape in a string"))
    }
}

fn is_blank(nodes: &[Node]) -> bool {
    nodes.iter().all(|node| match node {
        Node::Text(text) => text.trim().is_empty(),
        Node::Output(_) | Node::If { .. } | Node::With { .. } | Node::Range { .. } => false,
        Node::Call { .. } | Node::Break | Node::Continue => false,
    })
}

fn shortened(text: &str) -> String {
    text.chars().take(20).collect()
}
