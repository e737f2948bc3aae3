//! A command line that is nearly one: what was probably meant.
use std::process::ExitCode;

use clap::{
    Command, CommandFactory,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{Stead, failure::Failure, render::Output};

/// How a word looks.
type Looks = fn(&str) -> bool;

/// Options that a bare word was probably meant for, the most telling first, and how such a word looks.
const MEANT: [(&str, Looks); 14] = [
    ("digest", |word| word.starts_with("sha256:")),
    ("run", |word| word.starts_with("run_")),
    ("actor", |word| word.starts_with("prn_") || word.starts_with("rnr_")),
    ("stream", |word| word.contains('/') && !word.contains(':')),
    ("server", |word| word.contains("://")),
    ("input", |word| word.contains('=')),
    ("to", |word| word.parse::<u32>().is_ok()),
    ("role", |word| ["owner", "approver", "auditor", "viewer"].contains(&word)),
    ("install", |_| true),
    ("app", |_| true),
    ("component", |_| true),
    ("step", |_| true),
    ("name", |_| true),
    ("reason", |_| true),
];

/// Tell the person or the program, and the shell.
pub(crate) fn report(mut error: clap::Error) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(tip) = tip(&words, &error) {
        let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tip);
        // `apps` for `approve` would only lead astray.
        error.remove(ContextKind::SuggestedSubcommand);
    }
    match (error.exit_code(), output(&words)) {
        (2, output @ (Output::Json | Output::Ndjson)) => {
            let said = error.render().to_string();
            Failure::Usage(said.trim_start_matches("error: ").trim_end().into()).report(output)
        }
        (code, _) => {
            // A reader that went away need not read it.
            let _ = error.print();
            ExitCode::from(u8::try_from(code).unwrap_or(2))
        }
    }
}

/// What `--output` says, on a line that is otherwise wrong.
fn output(words: &[String]) -> Output {
    let after = |name: &str| words.windows(2).find(|two| two[0] == name).map(|two| two[1].as_str());
    let joined = words.iter().find_map(|word| word.strip_prefix("--output="));
    match joined.or(after("--output")).or(after("-o")) {
        Some("json" | "sarif") => Output::Json,
        Some("ndjson") => Output::Ndjson,
        Some(_) | None => Output::Table,
    }
}

fn tip(words: &[String], error: &clap::Error) -> Option<String> {
    let mut root = Stead::command();
    root.build();
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(_) | None => None,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let word = text(ContextKind::InvalidArg)?;
            let option = option(leaf(&root, words), &word)?;
            let quoted = if word.contains(' ') { format!("'{word}'") } else { word };
            Some(format!("did you mean `--{option} {quoted}`?"))
        }
        ErrorKind::InvalidSubcommand => {
            let verb = text(ContextKind::InvalidSubcommand)?;
            let nouns: Vec<_> = root.get_subcommands().filter(|noun| has(noun, &verb)).collect();
            let after = words.iter().skip_while(|word| **word != verb).nth(1);
            let named = nouns.iter().find(|noun| after.is_some_and(|word| word == noun.get_name()));
            let all: Vec<_> = named.map_or(nouns.clone(), |noun| vec![*noun]);
            let line = |noun: &&Command| format!("`stead {} {verb}`", noun.get_name());
            let all: Vec<_> = all.iter().map(line).collect();
            (1..=3).contains(&all.len()).then(|| format!("did you mean {}?", all.join(" or ")))
        }
        _ => None,
    }
}

fn has(noun: &Command, verb: &str) -> bool {
    noun.get_name() != "help" && noun.find_subcommand(verb).is_some()
}

/// The command that these words name.
fn leaf<'c>(root: &'c Command, words: &[String]) -> &'c Command {
    words.iter().fold(root, |at, word| at.find_subcommand(word).unwrap_or(at))
}

fn option(command: &Command, word: &str) -> Option<&'static str> {
    if word.starts_with('-') {
        return None;
    }
    let takes = |name: &str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
    MEANT.iter().find(|(name, looks)| takes(name) && looks(word)).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn said(line: &str) -> Option<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error =
            Stead::try_parse_from(["stead"].into_iter().chain(line.split(' '))).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
        tip(&words, &error)
    }

    #[test]
    fn a_bare_word_is_taken_for_the_option_that_it_looks_like() {
        for (line, meant) in [
            ("runs list acme", "--install acme"),
            ("jobs list run_01ARZ3NDEKTSV4RRFFQ69G5FAV", "--run run_01ARZ3NDEKTSV4RRFFQ69G5FAV"),
            ("installs list shop", "--app shop"),
            ("builds list shop", "--app shop"),
            ("installs upgrade acme 2", "--to 2"),
            ("installs create shop acme size=2", "--input size=2"),
            ("installs deploy acme api", "--component api"),
            ("runs approve acme sha256:00 --reason x", "--digest sha256:00"),
            ("runs deny acme network --reason x", "--step network"),
            ("runs cancel acme because", "--reason because"),
            ("tokens create approver", "--role approver"),
            ("audit events acme", "--install acme"),
            ("audit replay acme", "--install acme"),
            ("login http://127.0.0.1:7070", "--server http://127.0.0.1:7070"),
        ] {
            assert_eq!(said(line), Some(format!("did you mean `{meant}`?")), "{line}");
        }
        assert_eq!(said("runs list --instal acme"), None, "clap knows that one");
    }

    #[test]
    fn a_verb_without_its_noun_is_told_whose_it_is() {
        assert_eq!(said("approve acme").unwrap(), "did you mean `stead runs approve`?");
        assert_eq!(said("sync ./shop").unwrap(), "did you mean `stead apps sync`?");
        assert_eq!(said("list runs").unwrap(), "did you mean `stead runs list`?");
        assert_eq!(said("list"), None, "too many");
        assert_eq!(said("dance"), None);
    }

    #[test]
    fn the_format_is_read_from_a_line_that_is_wrong() {
        let of = |line: &str| output(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(of("-o json runs list acme"), Output::Json);
        assert_eq!(of("runs list acme --output=ndjson"), Output::Ndjson);
        assert_eq!(of("runs list acme"), Output::Table);
    }
}
