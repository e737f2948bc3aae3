//! From tokens to a tree. Variables and functions are checked here, before anything is rendered.
use super::{
    Fault,
    ast::{Base, Command, Node, Operand, Parsed, Pipe},
    functions,
    lex::lex,
    token::{Item, Token, TokenKind},
};

/// Deeper nesting is refused rather than trusted to the stack.
const DEEPEST: usize = 100;

pub fn parse(source: &str) -> Result<Parsed, Fault> {
    let items = lex(source)?;
    let mut parser = Parser { items: items.into_iter(), vars: root(), parsed: Parsed::default() };
    let (body, end) = parser.list(0, true)?;
    match end {
        Closing::Text => {}
        Closing::Else { at, .. } | Closing::Done { at } => {
            return Err(Fault::parse(at, "this `end` or `else` belongs to nothing"));
        }
    }
    parser.parsed.body = body;
    Ok(parser.parsed)
}

fn root() -> Vec<String> {
    vec!["$".to_string()]
}

struct Parser {
    items: std::vec::IntoIter<Item>,
    vars: Vec<String>,
    parsed: Parsed,
}

/// What closed a list of nodes.
enum Closing {
    Text,
    Done {
        at: usize,
    },
    /// With what follows `else`: nothing, or another `if` or `with`.
    Else {
        at: usize,
        rest: Vec<Token>,
    },
}

impl Parser {
    fn list(&mut self, depth: usize, top: bool) -> Result<(Vec<Node>, Closing), Fault> {
        let mut nodes = Vec::new();
        while let Some(item) = self.items.next() {
            let (tokens, at) = match item {
                Item::Text(text) => {
                    nodes.push(Node::Text(text));
                    continue;
                }
                Item::Action { tokens, at } => (tokens, at),
            };
            if depth > DEEPEST {
                return Err(Fault::parse(at, "this nests too deep"));
            }
            let word = match tokens.first().map(|token| &token.kind) {
                Some(TokenKind::Word(word)) => word.clone(),
                Some(_) | None => String::new(),
            };
            match word.as_str() {
                "end" => {
                    only(&tokens, 1)?;
                    return Ok((nodes, Closing::Done { at }));
                }
                "else" => return Ok((nodes, Closing::Else { at, rest: tokens[1..].to_vec() })),
                "if" | "with" | "range" => {
                    nodes.push(self.control(&word, &tokens[1..], at, depth)?)
                }
                "define" if top && depth == 0 => self.define(&tokens, at)?,
                "define" => return Err(Fault::parse(at, "`define` has to stand at the top")),
                "template" => nodes.push(self.call(&tokens, at)?),
                "block" | "break" | "continue" => {
                    return Err(Fault::parse(at, format!("`{word}` is not supported")));
                }
                _ => nodes.push(Node::Output(self.whole_pipe(&tokens, at, 1)?)),
            }
        }
        Ok((nodes, Closing::Text))
    }

    fn control(
        &mut self,
        word: &str,
        tokens: &[Token],
        at: usize,
        depth: usize,
    ) -> Result<Node, Fault> {
        if depth > DEEPEST {
            return Err(Fault::parse(at, "this nests too deep"));
        }
        let outer = self.vars.len();
        let pipe = self.whole_pipe(tokens, at, if word == "range" { 2 } else { 1 })?;
        let inner = self.vars.len();
        let (body, end) = self.list(depth + 1, false)?;
        self.vars.truncate(inner);
        let otherwise = match end {
            Closing::Text => return Err(Fault::parse(at, format!("this `{word}` has no `end`"))),
            Closing::Done { .. } => Vec::new(),
            Closing::Else { rest, at } => self.otherwise(word, &rest, at, depth)?,
        };
        self.vars.truncate(outer);
        Ok(match word {
            "if" => Node::If { pipe, body, otherwise },
            "with" => Node::With { pipe, body, otherwise },
            _ => Node::Range { pipe, body, otherwise },
        })
    }

    fn otherwise(
        &mut self,
        word: &str,
        rest: &[Token],
        at: usize,
        depth: usize,
    ) -> Result<Vec<Node>, Fault> {
        if let Some(first) = rest.first() {
            // `else if` shares the one `end` of the chain.
            let again = matches!(&first.kind, TokenKind::Word(next) if next == word);
            if !again || word == "range" {
                return Err(Fault::parse(first.at, "unexpected words behind `else`"));
            }
            return Ok(vec![self.control(word, &rest[1..], at, depth + 1)?]);
        }
        match self.list(depth + 1, false)? {
            (nodes, Closing::Done { .. }) => Ok(nodes),
            (_, Closing::Text) => Err(Fault::parse(at, "this `else` has no `end`")),
            (_, Closing::Else { at, .. }) => Err(Fault::parse(at, "a second `else`")),
        }
    }

    fn define(&mut self, tokens: &[Token], at: usize) -> Result<(), Fault> {
        let Some(TokenKind::Text(name)) = tokens.get(1).map(|token| &token.kind) else {
            return Err(Fault::parse(at, "`define` needs a name in quotes"));
        };
        only(tokens, 2)?;
        let vars = std::mem::replace(&mut self.vars, root());
        let (body, end) = self.list(1, false)?;
        self.vars = vars;
        match end {
            Closing::Done { .. } => {}
            Closing::Text => return Err(Fault::parse(at, "this `define` has no `end`")),
            Closing::Else { at, .. } => return Err(Fault::parse(at, "`else` belongs to nothing")),
        }
        if self.parsed.defines.insert(name.clone(), body).is_some() {
            return Err(Fault::parse(at, format!("the template {name:?} is defined twice")));
        }
        Ok(())
    }

    fn call(&mut self, tokens: &[Token], at: usize) -> Result<Node, Fault> {
        let Some(TokenKind::Text(name)) = tokens.get(1).map(|token| &token.kind) else {
            return Err(Fault::parse(at, "`template` needs a name in quotes"));
        };
        let pipe = match &tokens[2..] {
            [] => None,
            rest => Some(self.whole_pipe(rest, at, 1)?),
        };
        Ok(Node::Call { name: name.clone(), pipe, at })
    }

    fn whole_pipe(&mut self, tokens: &[Token], at: usize, most: usize) -> Result<Pipe, Fault> {
        let mut reader = Reader { tokens, next: 0, vars: &mut self.vars, depth: 0 };
        let pipe = reader.pipe(at, most)?;
        match reader.peek() {
            None => Ok(pipe),
            Some(token) => Err(Fault::parse(token.at, "unexpected `)` or word")),
        }
    }
}

fn only(tokens: &[Token], count: usize) -> Result<(), Fault> {
    match tokens.get(count) {
        Some(extra) => Err(Fault::parse(extra.at, "unexpected words here")),
        None => Ok(()),
    }
}

/// Reads one pipeline.
struct Reader<'t> {
    tokens: &'t [Token],
    next: usize,
    vars: &'t mut Vec<String>,
    depth: usize,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.next)
    }

    fn peek_kind(&self, ahead: usize) -> Option<&'t TokenKind> {
        self.tokens.get(self.next + ahead).map(|token| &token.kind)
    }

    fn pipe(&mut self, at: usize, most: usize) -> Result<Pipe, Fault> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Fault::parse(at, "these parentheses nest too deep"));
        }
        let (sets, assigns) = self.sets(most)?;
        let mut commands = vec![self.command(at)?];
        while let Some(TokenKind::Pipe) = self.peek_kind(0) {
            let at = self.tokens[self.next].at;
            self.next += 1;
            let command = self.command(at)?;
            let callable = command.operands.first().is_some_and(Operand::may_take_arguments);
            if !callable {
                return Err(Fault::parse(command.at, "what follows `|` has to be a function"));
            }
            commands.push(command);
        }
        if !assigns {
            // Declared only behind the value, so that `$x := $x` reads the outer one.
            self.vars.extend(sets.iter().cloned());
        }
        self.depth -= 1;
        Ok(Pipe { sets, assigns, commands, at })
    }

    /// `$x :=`, `$x =`, and in `range` also `$k, $v :=`.
    fn sets(&mut self, most: usize) -> Result<(Vec<String>, bool), Fault> {
        let mut names = Vec::new();
        let mut ahead = 0;
        while let Some(TokenKind::Variable(name)) = self.peek_kind(ahead) {
            names.push(name.clone());
            ahead += 1;
            match self.peek_kind(ahead) {
                Some(TokenKind::Comma) => ahead += 1,
                Some(TokenKind::Declare | TokenKind::Assign) => break,
                _ => return Ok((Vec::new(), false)),
            }
        }
        let at = self.peek().map_or(0, |token| token.at);
        let assigns = match self.peek_kind(ahead) {
            Some(TokenKind::Declare) if !names.is_empty() => false,
            Some(TokenKind::Assign) if !names.is_empty() => true,
            _ => return Ok((Vec::new(), false)),
        };
        if names.len() > most {
            return Err(Fault::parse(at, "too many variables are set here"));
        }
        if let Some(unknown) = names.iter().find(|name| assigns && !self.vars.contains(name)) {
            return Err(Fault::parse(at, format!("the variable {unknown} is not declared")));
        }
        self.next += ahead + 1;
        Ok((names, assigns))
    }

    fn command(&mut self, at: usize) -> Result<Command, Fault> {
        let at = self.peek().map_or(at, |token| token.at);
        let mut operands: Vec<Operand> = Vec::new();
        while let Some(token) = self.peek() {
            if matches!(token.kind, TokenKind::Pipe | TokenKind::Close) {
                break;
            }
            if !operands.is_empty() && !token.spaced {
                return Err(Fault::parse(token.at, "a space is missing between two operands"));
            }
            operands.push(self.operand(token)?);
        }
        match operands.first() {
            None => Err(Fault::parse(at, "a value is missing here")),
            Some(first) if matches!(first.base, Base::Nil) && operands.len() == 1 => {
                Err(Fault::parse(at, "nil is not a command"))
            }
            Some(_) => Ok(Command { operands, at }),
        }
    }

    fn operand(&mut self, token: &'t Token) -> Result<Operand, Fault> {
        self.next += 1;
        let mut fields = Vec::new();
        let mut end = token.end;
        let base = match &token.kind {
            TokenKind::Dot => Base::Dot,
            TokenKind::Field(name) => {
                fields.push(name.clone());
                Base::Dot
            }
            TokenKind::Variable(name) if self.vars.contains(name) => Base::Variable(name.clone()),
            TokenKind::Variable(name) => {
                return Err(Fault::parse(token.at, format!("the variable {name} is not declared")));
            }
            TokenKind::Word(word) => self.word(word, token.at)?,
            TokenKind::Text(text) => Base::Text(text.clone()),
            TokenKind::Int(number) => Base::Int(*number),
            TokenKind::Float(number) => Base::Float(*number),
            TokenKind::Open => {
                let pipe = self.pipe(token.at, 1)?;
                match self.peek() {
                    Some(close) if close.kind == TokenKind::Close => end = close.end,
                    Some(_) | None => {
                        return Err(Fault::parse(token.at, "this parenthesis is not closed"));
                    }
                }
                self.next += 1;
                Base::Paren(Box::new(pipe))
            }
            TokenKind::Pipe
            | TokenKind::Close
            | TokenKind::Declare
            | TokenKind::Assign
            | TokenKind::Comma => {
                return Err(Fault::parse(token.at, "this does not belong here"));
            }
        };
        while let Some(Token { kind: TokenKind::Field(name), spaced: false, end: last, at }) =
            self.peek()
        {
            if matches!(
                base,
                Base::Text(_) | Base::Int(_) | Base::Float(_) | Base::Bool(_) | Base::Nil
            ) {
                return Err(Fault::parse(*at, "a literal has no fields"));
            }
            fields.push(name.clone());
            end = *last;
            self.next += 1;
        }
        Ok(Operand { base, fields, at: token.at, end })
    }

    fn word(&self, word: &str, at: usize) -> Result<Base, Fault> {
        Ok(match word {
            "true" => Base::Bool(true),
            "false" => Base::Bool(false),
            "nil" => Base::Nil,
            _ if functions::is_known(word) => Base::Function(word.to_string()),
            _ => return Err(Fault::parse(at, format!("there is no function {word:?}"))),
        })
    }
}

impl Operand {
    /// Only functions take what a `|` hands on; Go also accepts methods, of which there are none.
    fn may_take_arguments(&self) -> bool {
        match self.base {
            Base::Function(_) | Base::Dot | Base::Variable(_) | Base::Paren(_) => true,
            Base::Text(_) | Base::Int(_) | Base::Float(_) | Base::Bool(_) | Base::Nil => false,
        }
    }
}
