//! Formats differences for the terminal.
use std::fmt;

use serde_json::Value;

use super::{Around, Change, Difference, PartChange, Why};

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Source => f.write_str("its source"),
            Why::Setting { key, before, after } => {
                write!(f, "{key}: {} -> {}", short(before), short(after))
            }
            Why::Text { key } => write!(f, "{key}: text changed"),
            Why::File { path } => write!(f, "the file {path}"),
            Why::Plugin { name } => write!(f, "the plugin {name}"),
            Why::InputDefault { input, before, after } => {
                let text = |text: &Option<String>| short(&text.clone().map(Value::String));
                write!(f, "the default of input {input}: {} -> {}", text(before), text(after))
            }
            Why::RunnerEnv => f.write_str("the runner's env_vars"),
        }
    }
}

fn short(value: &Option<Value>) -> String {
    let Some(value) = value else { return "(none)".to_string() };
    let text = value.to_string();
    if text.chars().count() <= 60 {
        return text;
    }
    format!("{}…", text.chars().take(60).collect::<String>())
}

impl fmt::Display for PartChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.change {
            Change::Added => '+',
            Change::Changed => '~',
            Change::Removed => '-',
            Change::Unchanged => ' ',
        };
        write!(f, "{sign} {}", self.name)?;
        for why in &self.why {
            write!(f, "\n      {why}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("no changes");
        }
        let mut first = true;
        let sandbox: Vec<PartChange> = self.sandbox.iter().cloned().collect();
        let groups = [
            ("sandbox", &sandbox),
            ("components", &self.components),
            ("actions", &self.actions),
            ("inputs", &self.inputs),
        ];
        for (title, parts) in groups {
            if parts.iter().all(|part| part.change == Change::Unchanged) {
                continue;
            }
            write!(f, "{}{title}", if first { "" } else { "\n" })?;
            first = false;
            for part in parts {
                write!(f, "\n  {part}")?;
            }
        }
        for Around { kind, part } in &self.around {
            write!(f, "{}{kind}\n  {part}", if first { "" } else { "\n" })?;
            first = false;
        }
        Ok(())
    }
}
