//! `stead templates`: renders and explains templates, without a server.
use std::{fs, io::Read, path::PathBuf};

use app_config::{
    Origin,
    template::{Template, Variable, is_template},
};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::{
    failure::Failure,
    render::{Screen, Table, Tone},
    settings::Settings,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Templates {
    /// Render a template with a state
    #[command(after_help = "\
Examples:
  stead templates render --state state.json components/values/api.yaml
  echo '{{ .nuon.install.id }}' | stead templates render --state state.json
  stead templates render --state state.json --output json README.md

The state has the form {\"nuon\": {\"install\": {\"id\": \"…\"}, \"inputs\": {\"inputs\": {…}}}}.

A text without `.nuon` and `.stead` is not a template. The command prints it unchanged.")]
    Render(Source),
    /// List the variables that a template reads, with their origin and value
    #[command(after_help = "\
Examples:
  stead templates explain --state state.json components/values/api.yaml
  stead templates explain README.md                 without a state: no values
  stead templates explain --state state.json --output json api.yaml | jq '.[] | select(.missing)'

The exit code is 1 if the state lacks a required value.")]
    Explain {
        /// State, as JSON; without it, missing values are not reported
        #[arg(long, value_name = "FILE")]
        state: Option<PathBuf>,
        /// Template; `-` reads standard input
        #[arg(default_value = "-")]
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Source {
    /// State, as JSON
    #[arg(long, value_name = "FILE")]
    state: PathBuf,
    /// Template; `-` reads standard input
    #[arg(default_value = "-")]
    file: PathBuf,
}

pub(crate) fn run(verb: Templates, settings: &Settings) -> Result<(), Failure> {
    let screen = settings.screen();
    match verb {
        Templates::Render(Source { state, file }) => {
            let state = read_state(&state)?;
            let (text, origin) = read(&file)?;
            let rendered = app_config::render(&text, &state, &origin).map_err(wrong)?;
            screen.print_one(&json!({ "text": rendered }), |_| rendered.clone())
        }
        Templates::Explain { state, file } => {
            let known = state.as_ref().map(read_state).transpose()?;
            let (text, origin) = read(&file)?;
            if !is_template(&text) {
                screen.remark("This is not a template: it contains neither `.nuon` nor `.stead`.");
            }
            explain(&screen, &text, &origin, known.as_ref())
        }
    }
}

fn explain(
    screen: &Screen,
    text: &str,
    origin: &Origin,
    state: Option<&Value>,
) -> Result<(), Failure> {
    let mut variables = Vec::new();
    if is_template(text) {
        let template = Template::parse(text, origin).map_err(wrong)?;
        variables = template.variables(state.unwrap_or(&Value::Null));
    }
    if state.is_none() {
        variables.iter_mut().for_each(|variable| variable.missing = false);
    }
    screen.print_list(&variables, "No variables.", |screen| table(&variables, screen))?;
    let missing = variables.iter().filter(|variable| variable.missing && variable.needed).count();
    match missing {
        0 => Ok(()),
        1 => Err(Failure::Outcome(
            "cannot render the template: the state lacks one required variable; add it to the state".into(),
        )),
        _ => Err(Failure::Outcome(format!(
            "cannot render the template: the state lacks {missing} required variables; add them to the state"
        ))),
    }
}

pub(crate) fn table(variables: &[Variable], screen: &Screen) -> Table {
    let mut table = Table::new(["VARIABLE", "COMES FROM", "VALUE"]);
    for variable in variables {
        let value = match (&variable.value, variable.missing) {
            (Some(value), _) => shortened(&value.to_string()),
            (None, true) if variable.needed => screen.paint(Tone::Bad, "missing"),
            (None, true) => screen.paint(Tone::Faint, "missing, not required"),
            (None, false) => String::new(),
        };
        table.row([variable.name.clone(), variable.from.clone(), value]);
    }
    table
}

fn shortened(value: &str) -> String {
    let most = 48;
    if value.chars().count() <= most {
        return value.to_string();
    }
    format!("{}…", value.chars().take(most).collect::<String>())
}

fn wrong(error: app_config::TemplateError) -> Failure {
    Failure::Usage(error.to_string())
}

fn read(file: &PathBuf) -> Result<(String, Origin), Failure> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|e| unreadable_file("standard input", &e))?;
        return Ok((text, Origin::file("-")));
    }
    let name = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|e| unreadable_file(&name, &e))?;
    Ok((text, Origin::file(name)))
}

fn read_state(file: &PathBuf) -> Result<Value, Failure> {
    let name = file.display();
    let bytes = fs::read(file).map_err(|e| unreadable_file(&name.to_string(), &e))?;
    let state: Value = serde_json::from_slice(&bytes).map_err(|error| {
        Failure::Usage(format!("cannot read the state {name} as JSON: {error}"))
    })?;
    if state.get("nuon").is_none() && state.get("stead").is_none() {
        let message = format!(
            "cannot use the state {name}: it has no top-level key `nuon` or `stead`\n  try: {{\"nuon\": {{…}}}}"
        );
        return Err(Failure::Usage(message));
    }
    Ok(state)
}

fn unreadable_file(name: &str, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("cannot read {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::Output;

    fn explain_text(text: &str, state: Option<&Value>) -> Result<(), Failure> {
        explain(&Screen::new(Output::Table, true, true), text, &Origin::file("t"), state)
    }

    #[test]
    fn missing_state_values_are_an_outcome_failure() {
        let state = json!({ "nuon": { "a": 1 } });
        assert!(explain_text("{{ .nuon.a }}", Some(&state)).is_ok());
        assert!(
            explain_text("{{ index .nuon \"b\" }}", Some(&state)).is_ok(),
            "`index` allows a missing key"
        );
        assert_eq!(explain_text("{{ .nuon.b }}", Some(&state)).unwrap_err().code(), 1);
        assert!(explain_text("{{ .nuon.b }}", None).is_ok(), "no state is given");
        let failure = explain_text("a\n{{ .nuon.b", Some(&state)).unwrap_err();
        assert_eq!(
            (failure.code(), failure.text().as_str()),
            (2, "error: t:2:11: this action has no closing `}}`\n")
        );
    }

    #[test]
    fn state_without_top_level_key_is_rejected_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state.json");
        fs::write(&file, "{}").unwrap();
        assert!(read_state(&file).unwrap_err().text().contains("try: {\"nuon\""));
    }
}
