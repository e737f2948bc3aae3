//! Parses the contents of braces: pipelines, commands, operands.
use std::sync::Arc;

use super::{
    Fault,
    ast::{Base, Command, Number, Operand, Pipe},
    functions, literal,
    parse::Parser,
    token::{Kind, Token},
};

/// Maximum number of variables in one scope. Each read of a variable scans the scope, while parsing
/// and while rendering.
const MAX_VARIABLES: usize = 500;

impl<'s> Parser<'s> {
    /// Parses a pipeline up to `end`. Errors name the `place`. In `range`, the pipeline may set two
    /// variables.
    pub fn pipe(&mut self, place: &str, end: Kind) -> Result<Pipe, Fault> {
        self.deeper()?;
        let at = self.peek_word().at;
        let (sets, assigns) = self.sets(place)?;
        let mut commands: Vec<Command> = Vec::new();
        loop {
            let token = self.next_word();
            if token.kind == end {
                break;
            }
            if !begins_an_operand(token.kind) {
                return Err(self.unexpected(token, place));
            }
            self.backup();
            commands.push(self.command()?);
        }
        if commands.is_empty() {
            return Err(self.wrong(format!("a value is missing in {place}")));
        }
        let takes = |command: &Command| command.operands.first().is_some_and(may_take_arguments);
        if !commands[1..].iter().all(takes) {
            return Err(self.wrong("`|` must be followed by a function"));
        }
        self.depth -= 1;
        Ok(Pipe { sets, assigns, commands, at })
    }

    /// Parses `$x :=`, `$x =`, and in `range` also `$k, $v :=`. The variable is in scope from this
    /// point, even before it has a value.
    fn sets(&mut self, place: &str) -> Result<(Vec<Arc<str>>, bool), Fault> {
        let mut names: Vec<Arc<str>> = Vec::new();
        loop {
            let variable = self.peek_word();
            if variable.kind != Kind::Variable {
                return Ok((names, false));
            }
            self.next();
            let following = self.peek();
            let next = self.peek_word();
            let assigns = next.kind == Kind::Assign;
            if assigns || next.kind == Kind::Declare {
                self.next_word();
                self.set(&mut names, variable, assigns)?;
                return Ok((names, assigns));
            }
            if next.kind != Kind::Comma {
                if following.kind == Kind::Space {
                    self.backup_three(variable, following);
                } else {
                    self.backup_two(variable);
                }
                return Ok((names, false));
            }
            self.next_word();
            self.set(&mut names, variable, false)?;
            if place != "range" || names.len() > 1 {
                return Err(self.wrong("too many variables on the left side"));
            }
            if !matches!(self.peek_word().kind, Kind::Variable | Kind::Right | Kind::Close) {
                return Err(self.wrong("`range` can only set variables"));
            }
        }
    }

    fn set(
        &mut self,
        names: &mut Vec<Arc<str>>,
        variable: Token<'s>,
        assigns: bool,
    ) -> Result<(), Fault> {
        let name: Arc<str> = Arc::from(variable.text);
        names.push(Arc::clone(&name));
        if assigns && self.knows(variable) {
            return Ok(());
        }
        if self.vars.len() > MAX_VARIABLES {
            let why = format!("too many variables: the maximum in one scope is {MAX_VARIABLES}");
            return Err(self.wrong(why));
        }
        self.vars.push(name);
        Ok(())
    }

    fn knows(&self, variable: Token<'s>) -> bool {
        self.vars.iter().any(|known| **known == *variable.text)
    }

    fn command(&mut self) -> Result<Command, Fault> {
        let mut operands = Vec::new();
        loop {
            self.peek_word();
            operands.extend(self.operand()?);
            let token = self.next();
            if token.kind == Kind::Space {
                continue;
            }
            if matches!(token.kind, Kind::Right | Kind::Close) {
                self.backup();
            } else if token.kind != Kind::Pipe {
                return Err(self.unexpected(token, "an operand"));
            }
            break;
        }
        if operands.is_empty() {
            return Err(self.wrong("a value is missing"));
        }
        Ok(Command { operands })
    }

    /// Parses a term and the fields read from it. `None` if the next token starts no operand.
    fn operand(&mut self) -> Result<Option<Operand>, Fault> {
        let Some((base, first)) = self.term()? else { return Ok(None) };
        let mut fields: Vec<Arc<str>> = Vec::new();
        // For a parenthesis, the last token is the closing parenthesis.
        let mut end = if first.kind == Kind::Open { self.last_end() } else { first.end() };
        let mut at = first.at;
        if first.kind == Kind::Field {
            fields.push(Arc::from(&first.text[1..]));
        }
        if self.peek().kind == Kind::Field {
            at = self.peek().at;
            while self.peek().kind == Kind::Field {
                let field = self.next();
                fields.push(Arc::from(&field.text[1..]));
                end = field.end();
            }
            let bare = match base {
                Base::Text(_) | Base::Number(_) | Base::Bool(_) | Base::Nil => true,
                Base::Dot => first.kind == Kind::Dot,
                Base::Variable(_) | Base::Function(_) | Base::Paren(_) => false,
            };
            if bare {
                return Err(self.wrong(format!("{:?} has no fields", first.text)));
            }
        }
        if let Base::Paren(pipe) = &base
            && fields.is_empty()
        {
            at = pipe.at;
        }
        Ok(Some(Operand { base, fields, at, start: first.at, end }))
    }

    fn term(&mut self) -> Result<Option<(Base, Token<'s>)>, Fault> {
        let token = self.next_word();
        let base = match token.kind {
            Kind::Word => Base::Function(self.function(token)?),
            Kind::Dot | Kind::Field => Base::Dot,
            Kind::Nil => Base::Nil,
            Kind::Variable => {
                if !self.knows(token) {
                    let why = format!("the variable {} is not declared", token.text);
                    return Err(self.wrong(why));
                }
                Base::Variable(Arc::from(token.text))
            }
            Kind::Bool => Base::Bool(token.text == "true"),
            Kind::Character => self.number(token, literal::character(token.text))?,
            Kind::Number => self.number(token, literal::number(token.text))?,
            Kind::Open => Base::Paren(Box::new(self.pipe("parentheses", Kind::Close)?)),
            Kind::Quoted | Kind::Raw => Base::Text(Arc::from(self.string(token)?)),
            Kind::Text
            | Kind::Left
            | Kind::Right
            | Kind::Space
            | Kind::Keyword
            | Kind::Pipe
            | Kind::Close
            | Kind::Declare
            | Kind::Assign
            | Kind::Comma
            | Kind::Other
            | Kind::End
            | Kind::Error => {
                self.backup();
                return Ok(None);
            }
        };
        Ok(Some((base, token)))
    }

    fn number(&self, token: Token<'s>, number: Option<Number>) -> Result<Base, Fault> {
        let none = || self.wrong(format!("invalid number {:?}", token.text));
        number.map(Base::Number).ok_or_else(none)
    }

    fn function(&mut self, token: Token<'s>) -> Result<&'static functions::Function, Fault> {
        let Some(function) = functions::find(token.text) else {
            return Err(self.wrong(format!("unknown function {:?}", token.text)));
        };
        self.parsed.changes |= function.name == "set";
        Ok(function)
    }
}

fn begins_an_operand(kind: Kind) -> bool {
    match kind {
        Kind::Bool
        | Kind::Character
        | Kind::Dot
        | Kind::Field
        | Kind::Word
        | Kind::Number
        | Kind::Nil
        | Kind::Raw
        | Kind::Quoted
        | Kind::Variable
        | Kind::Open => true,
        Kind::Text
        | Kind::Left
        | Kind::Right
        | Kind::Space
        | Kind::Keyword
        | Kind::Pipe
        | Kind::Close
        | Kind::Declare
        | Kind::Assign
        | Kind::Comma
        | Kind::Other
        | Kind::End
        | Kind::Error => false,
    }
}

/// True if the operand may receive the value of a `|`. Like Go, the parser accepts operands that
/// fail only while rendering.
fn may_take_arguments(operand: &Operand) -> bool {
    match operand.base {
        Base::Function(_) | Base::Variable(_) | Base::Paren(_) => true,
        Base::Dot => !operand.fields.is_empty(),
        Base::Text(_) | Base::Number(_) | Base::Bool(_) | Base::Nil => false,
    }
}
