//! Converts the output of `apply -json` for the log. Drops output values, and starts a phase for
//! each of the first resources.

use serde::Deserialize;

use crate::plugins::{
    contract::{Sink, Stream},
    process::LINE_LIMIT,
};

/// Largest number of phases for resources. With the other phases, the total stays below the limit
/// of a job.
const MAX_PHASES: usize = 50;
/// Longest name of a phase in characters. The address of a resource has no limit.
const NAME_LIMIT: usize = 120;
/// Longest part of the first error in the report, in characters.
const DETAIL_LIMIT: usize = 300;

/// State of the conversion of `apply -json` output.
#[derive(Default)]
pub(super) struct Progress {
    phases: usize,
    /// `true` while the next lines continue a message that was split.
    in_split_line: bool,
    /// True if an operation on a resource has begun.
    has_started: bool,
    first_error: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(rename = "@message")]
    message: String,
    #[serde(rename = "type", default)]
    kind: String,
    hook: Option<Hook>,
    diagnostic: Option<Diagnostic>,
}

#[derive(Deserialize)]
struct Hook {
    resource: Option<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    addr: String,
}

#[derive(Deserialize)]
struct Diagnostic {
    severity: String,
    summary: String,
    #[serde(default)]
    detail: String,
}

impl Progress {
    pub(super) fn line(&mut self, line: &[u8], sink: &mut dyn Sink) {
        let dropped = self.in_split_line;
        self.in_split_line = line.len() >= LINE_LIMIT && (dropped || line.starts_with(b"{"));
        if dropped {
            return;
        }
        let Ok(message) = serde_json::from_slice::<Message>(line) else {
            // Drop incomplete JSON, which can contain output values. A provider can also print
            // plain text.
            if !line.starts_with(b"{") {
                sink.line(Stream::Out, line);
            }
            return;
        };
        match message.kind.as_str() {
            "version" | "outputs" => return,
            "apply_start" => {
                self.has_started = true;
                self.resource(message.hook, sink);
            }
            _ => {}
        }
        sink.line(Stream::Out, message.message.as_bytes());
        if let Some(diagnostic) = message.diagnostic {
            for line in diagnostic.detail.lines() {
                sink.line(Stream::Out, format!("  {line}").as_bytes());
            }
            if diagnostic.severity == "error" {
                let short = diagnostic.summary.chars().take(DETAIL_LIMIT).collect();
                self.first_error.get_or_insert(short);
            }
        }
    }

    pub(super) fn has_started(&self) -> bool {
        self.has_started
    }

    /// Returns the name of the command, followed by its first error if there is one.
    pub(super) fn with_first_error(&self, command: &str) -> String {
        match &self.first_error {
            Some(error) => format!("{command} ({error})"),
            None => command.to_owned(),
        }
    }

    fn resource(&mut self, hook: Option<Hook>, sink: &mut dyn Sink) {
        let Some(resource) = hook.and_then(|hook| hook.resource) else { return };
        if self.phases < MAX_PHASES {
            self.phases += 1;
            let name: String = resource.addr.chars().take(NAME_LIMIT).collect();
            sink.phase(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::TestSink;

    #[test]
    fn no_part_of_a_split_message_is_shown() {
        let (mut progress, mut sink) = (Progress::default(), TestSink::default());
        let mut first = br#"{"type":"outputs","outputs":{"a":{"value":""#.to_vec();
        first.resize(LINE_LIMIT, b's');
        progress.line(&first, &mut sink);
        progress.line(&vec![b's'; LINE_LIMIT], &mut sink);
        progress.line(br#"the end of a value"}}}"#, &mut sink);
        assert!(sink.lines.is_empty());
        progress.line(b"output of a provider", &mut sink);
        assert_eq!(sink.lines, ["output of a provider"]);
    }
}
