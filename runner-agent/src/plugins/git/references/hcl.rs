//! Finds local module sources and files in HCL, without parsing expressions.
use super::{Reference, is_local};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token<'t> {
    Identifier(&'t str),
    /// Content between the quotes, as written.
    Literal(&'t str),
    Punctuation(u8),
}

/// Prefix of a path relative to the module's own directory.
const MODULE_PATH: &str = "${path.module}/";

pub(super) fn references(text: &str) -> Vec<Reference> {
    let tokens = Tokens { text, at: 0, line: 1 }.collect::<Vec<_>>();
    let (mut found, mut depth, mut module_depth) = (vec![], 0_usize, None);
    for (index, (line, token)) in tokens.iter().enumerate() {
        let before = |back: usize| {
            let token = index.checked_sub(back).and_then(|at| tokens.get(at));
            token.map(|(_, token)| token)
        };
        match token {
            Token::Punctuation(b'{') => {
                let has_label = matches!(before(1), Some(Token::Literal(_) | Token::Identifier(_)));
                depth += 1;
                if depth == 1 && has_label && before(2) == Some(&Token::Identifier("module")) {
                    module_depth = Some(depth);
                }
            }
            Token::Punctuation(b'}') => {
                depth = depth.saturating_sub(1);
                module_depth = module_depth.filter(|of_module| *of_module <= depth);
            }
            Token::Literal(path) => {
                let is_source = module_depth == Some(depth)
                    && before(1) == Some(&Token::Punctuation(b'='))
                    && before(2) == Some(&Token::Identifier("source"));
                if is_source && is_local(path) {
                    let path = (*path).to_owned();
                    let kind = "module source";
                    found.push(Reference { line: *line, path, kind, required: true });
                } else if let Some(path) = module_file(path) {
                    found.push(Reference { line: *line, path, kind: "file", required: false });
                }
            }
            Token::Identifier(_) | Token::Punctuation(_) => {}
        }
    }
    found
}

/// Returns the path of a file above the module's directory. For a path with another interpolation,
/// returns the directory before that interpolation.
fn module_file(text: &str) -> Option<String> {
    let path = text.strip_prefix(MODULE_PATH).filter(|path| path.starts_with(".."))?;
    let path = match path.split_once("${") {
        Some((fixed, _)) => fixed.rsplit_once('/').map(|(directory, _)| directory)?,
        None => path,
    };
    Some(path.to_owned())
}

struct Tokens<'t> {
    text: &'t str,
    at: usize,
    line: u32,
}

impl<'t> Tokens<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip(&mut self, bytes: usize) {
        let skipped = self.rest().get(..bytes).unwrap_or_else(|| self.rest());
        self.line += u32::try_from(skipped.matches('\n').count()).unwrap_or_default();
        self.at += skipped.len();
    }

    fn skip_to(&mut self, end: &str) {
        let rest = self.rest();
        self.skip(rest.find(end).map_or(rest.len(), |at| at + end.len()));
    }

    /// Returns the length of a string with its closing quote. `rest` starts after the opening
    /// quote.
    fn quoted(rest: &str) -> usize {
        let bytes = rest.as_bytes();
        // Number of open braces of this string, and of each string within an interpolation. A stack
        // on the heap, because a hostile file can nest strings to any depth.
        let (mut at, mut open) = (0, vec![0_usize]);
        while let (Some(byte), Some(braces)) = (bytes.get(at), open.last_mut()) {
            let next = bytes.get(at + 1);
            match byte {
                b'\\' if *braces == 0 => at += 1,
                b'$' | b'%' if next == Some(&b'{') => {
                    *braces += 1;
                    at += 1;
                }
                b'{' if *braces > 0 => *braces += 1,
                b'}' => *braces = braces.saturating_sub(1),
                b'"' if *braces > 0 => open.push(0),
                b'"' => {
                    open.pop();
                    if open.is_empty() {
                        return at + 1;
                    }
                }
                _ => {}
            }
            at += 1;
        }
        rest.len()
    }

    /// Skips a heredoc. Returns false if the rest does not start with one.
    fn skip_heredoc(&mut self) -> bool {
        let Some(after) = self.rest().strip_prefix("<<") else { return false };
        let after = after.strip_prefix('-').unwrap_or(after);
        let marker = after.lines().next().unwrap_or_default().trim();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if marker.is_empty() || !marker.chars().all(is_word) {
            return false;
        }
        self.skip_to("\n");
        while !self.rest().is_empty() {
            let is_end = self.rest().lines().next().unwrap_or_default().trim() == marker;
            self.skip_to("\n");
            if is_end {
                break;
            }
        }
        true
    }
}

impl<'t> Iterator for Tokens<'t> {
    type Item = (u32, Token<'t>);

    fn next(&mut self) -> Option<(u32, Token<'t>)> {
        loop {
            let rest = self.rest();
            let first = rest.chars().next()?;
            let line = self.line;
            if first.is_whitespace() {
                self.skip(first.len_utf8());
            } else if first == '#' || rest.starts_with("//") {
                self.skip_to("\n");
            } else if rest.starts_with("/*") {
                self.skip_to("*/");
            } else if first == '"' {
                let inner = rest.get(1..).unwrap_or_default();
                let length = Self::quoted(inner);
                self.skip(1 + length);
                let content = inner.get(..length).unwrap_or_default();
                return Some((line, Token::Literal(content.strip_suffix('"').unwrap_or(content))));
            } else if self.skip_heredoc() {
                continue;
            } else if first.is_alphabetic() || first == '_' {
                let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
                let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                self.skip(length);
                return Some((line, Token::Identifier(rest.get(..length).unwrap_or_default())));
            } else {
                self.skip(first.len_utf8());
                let mark = u8::try_from(first).unwrap_or(b'?');
                return Some((line, Token::Punctuation(mark)));
            }
        }
    }
}
