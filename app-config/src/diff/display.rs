//! Formats differences for the terminal.
use std::fmt;

use serde_json::Value;

use super::{Change, ChangeReason, Difference, PartChange, SupportingChange};

impl fmt::Display for ChangeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeReason::Source => f.write_str("its source"),
            ChangeReason::Setting { key, before, after } => {
                write!(f, "{key}: {} -> {}", short(before), short(after))
            }
            ChangeReason::Text { key } => write!(f, "{key}: text changed"),
            ChangeReason::File { path } => write!(f, "the file {path}"),
            ChangeReason::Plugin { name } => write!(f, "the plugin {name}"),
            ChangeReason::InputDefault { input, before, after } => {
                let text = |text: &Option<String>| short(&text.clone().map(Value::String));
                write!(f, "the default of input {input}: {} -> {}", text(before), text(after))
            }
            ChangeReason::RunnerEnv => f.write_str("the runner's env_vars"),
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
        for SupportingChange { kind, part } in &self.around {
            write!(f, "{}{kind}\n  {part}", if first { "" } else { "\n" })?;
            first = false;
        }
        Ok(())
    }
}
