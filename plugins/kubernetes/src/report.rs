//! Messages to the runner, one JSON object per line on standard output.

use std::{
    io::{self, Write},
    path::Path,
};

use schemas::plugin::{FileRef, MESSAGE_LIMIT, Message};
use serde_json::Value;

use crate::failure::{Failure, IoContext, Outcome};

/// Maximum length of a log line in bytes. Messages of an API server can be longer.
const LINE_LIMIT: usize = 16 << 10;

/// Writes a message. Callers ignore a closed pipe: the end of standard input stops the plugin.
fn send(message: &Message) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

/// Writes a line of the job's log.
pub fn log(line: impl Into<String>) {
    let _closed_pipe = send(&Message::Log { line: truncated(line.into(), LINE_LIMIT) });
}

/// Reports a new phase of the job.
pub fn phase(phase: &str) {
    let _closed_pipe = send(&Message::Progress { phase: phase.into() });
}

/// Sends the response to a call. Writes a value that is too long for a message to a file in
/// `work_dir`, which is `None` for a runner of version 1.
pub fn answer(id: u64, result: Outcome<Value>, work_dir: Option<&Path>) -> io::Result<()> {
    let message = match result.and_then(|value| to_file_if_long(value, work_dir)) {
        Ok((value, value_file)) => Message::Result { id, value, value_file },
        Err(Failure { code, message }) => {
            Message::Error { id, code, message: truncated(message, MESSAGE_LIMIT / 4) }
        }
    };
    send(&message)
}

/// Moves a long value to a file.
fn to_file_if_long(value: Value, work_dir: Option<&Path>) -> Outcome<(Value, Option<FileRef>)> {
    // Reserves space for the rest of the message.
    const LIMIT: usize = MESSAGE_LIMIT - 1024;
    let text = value.to_string();
    if text.len() <= LIMIT {
        return Ok((value, None));
    }
    let Some(work_dir) = work_dir else {
        return Err(Failure::refused(format!(
            "cannot return the result: it exceeds {LIMIT} bytes, the limit of this runner; split the \
             component, or upgrade the runner"
        )));
    };
    let path = work_dir.join("kubernetes-result.json");
    std::fs::write(&path, &text).context(|| format!("write {}", path.display()))?;
    Ok((Value::Null, Some(FileRef::of(path, text.as_bytes()))))
}

fn truncated(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let end = (0..=limit).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_value_moves_to_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let long = Value::from("x".repeat(MESSAGE_LIMIT));
        let (value, file) = to_file_if_long(long.clone(), Some(dir.path())).unwrap();
        let file = file.unwrap();
        assert_eq!(value, Value::Null);
        let content = std::fs::read(&file.path).unwrap();
        assert_eq!(file.parse::<Value>(&content).unwrap(), long);
        assert!(to_file_if_long(long, None).is_err());
        let (value, file) = to_file_if_long(Value::from("short"), None).unwrap();
        assert_eq!((value, file), (Value::from("short"), None));
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        assert_eq!(truncated("grün".into(), 3), "gr…");
        assert_eq!(truncated("grün".into(), 5), "grün");
    }
}
