//! Values of the app's secrets. No release delivers them yet, so a copy of the app contains a text in
//! place of each read.
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use ::tests::stdout_of;

use crate::{app::App, rules::Rules};

/// Paths of templates below which the secrets are.
const READS: [&str; 2] = ["nuon.install.secrets.", "nuon.secrets."];

/// Returns a copy of the app directory without reads of secrets. Returns none for an app that reads no
/// secrets.
pub(crate) fn without(app: &App, work: &Path, rules: &Rules) -> Option<PathBuf> {
    let is_read = |variable: &&String| READS.iter().any(|read| variable.starts_with(read));
    let read: BTreeSet<&String> = app.reads.iter().filter(is_read).collect();
    if read.is_empty() {
        return None;
    }
    let copy = work.join("version-1").join(&app.name);
    fs::create_dir_all(copy.parent().unwrap()).unwrap();
    stdout_of(Command::new("cp").args(["-R", "-L"]).arg(&app.dir).arg(&copy));
    stdout_of(Command::new("chmod").args(["-R", "u+w"]).arg(&copy));
    let mut open = vec![copy.clone()];
    while let Some(dir) = open.pop() {
        for path in fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                open.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                fs::write(&path, with_texts(&text)).unwrap();
            }
        }
    }
    for variable in read {
        rules.note(format!("a text for {variable}"));
    }
    Some(copy)
}

/// Replaces each path of a secret in a template by a literal.
fn with_texts(text: &str) -> String {
    let mut replaced = String::new();
    let mut rest = text;
    while let Some((before, template)) = rest.split_once("{{") {
        let Some((template, after)) = template.split_once("}}") else { break };
        let mut template = template.to_owned();
        for read in READS {
            while let Some((before, path)) = template.split_once(&format!(".{read}")) {
                let is_of_path = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
                let end = path.find(|c| !is_of_path(c)).unwrap_or(path.len());
                let (path, after) = path.split_at(end);
                let literal = path.replace(['.', '_'], "-");
                template = format!("{before}`secret-{literal}`{after}");
            }
        }
        replaced += &format!("{before}{{{{{template}}}}}");
        rest = after;
    }
    replaced + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reads_of_secrets_become_texts() {
        let text = "a: \"{{ .nuon.install.secrets.a_b | quote }}\" {{.nuon.secrets.c.arn}} {{ .nuon.x }} {{";
        let expected = "a: \"{{ `secret-a-b` | quote }}\" {{`secret-c-arn`}} {{ .nuon.x }} {{";
        assert_eq!(with_texts(text), expected);
    }
}
