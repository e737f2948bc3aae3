//! Why a command did not do what was asked, what the shell is told, and what to do next.
use std::process::ExitCode;

use api::client::ClientError;
use schemas::problem::{FieldProblem, Problem};

/// Printed under `--help`; scripts may rely on it.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the work itself ended badly: a run failed, a log does not verify
  2  the command, or a file it was given, is wrong
  3  there is no such thing
  4  refused: not allowed, or in conflict with how things are
  5  the server cannot be reached or cannot answer now";

/// Why it did not work.
#[derive(Debug)]
pub enum Failure {
    /// The work ended badly; the sentence says how.
    Outcome(String),
    /// The command or its input is wrong.
    Usage(String),
    /// There is no such thing.
    NotFound(String),
    /// The server refused.
    Refused(Box<Problem>),
    /// No answer.
    Unreachable(String),
    /// What is wrong with a file has been printed already.
    Shown,
    /// The reader of our output went away.
    BrokenPipe,
}

impl Failure {
    /// What the shell is told.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Outcome(_) => 1,
            Failure::Usage(_) | Failure::Shown => 2,
            Failure::NotFound(_) => 3,
            Failure::Refused(problem) => match problem.status {
                400 | 413 | 415 | 422 => 2,
                404 => 3,
                500..=599 => 5,
                _ => 4,
            },
            Failure::Unreachable(_) => 5,
            Failure::BrokenPipe => 0,
        }
    }

    /// Tell the person, and the shell.
    pub fn report(&self) -> ExitCode {
        let text = self.text();
        if !text.is_empty() {
            eprint!("{text}");
        }
        ExitCode::from(self.code())
    }

    /// What the person reads.
    pub fn text(&self) -> String {
        match self {
            Failure::Outcome(said) | Failure::Usage(said) | Failure::NotFound(said) => {
                format!("error: {said}\n")
            }
            Failure::Unreachable(said) => format!(
                "error: {said}\n  try: `stead up` starts a server here; \
                 `stead login --server URL` names another one\n"
            ),
            Failure::Refused(problem) => refusal(problem),
            Failure::Shown | Failure::BrokenPipe => String::new(),
        }
    }
}

fn refusal(problem: &Problem) -> String {
    let said = if problem.detail.is_empty() { &problem.title } else { &problem.detail };
    let mut text = format!("error: {said} ({})\n", problem.code);
    for error in &problem.errors {
        text += &place(error);
    }
    if let Some(hint) = next(&problem.code) {
        text += &format!("  try: {hint}\n");
    }
    text
}

/// `file:line:column: message`, and the remedy under it.
pub fn place(error: &FieldProblem) -> String {
    let mut at = error.file.clone().unwrap_or_default();
    for number in [error.line, error.column].into_iter().flatten() {
        at += &format!(":{number}");
    }
    if let Some(field) = &error.field {
        at += &if at.is_empty() { field.clone() } else { format!(" ({field})") };
    }
    let colon = if at.is_empty() { "" } else { ": " };
    let mut text = format!("  {at}{colon}{}\n", error.message);
    if let Some(remedy) = &error.remedy {
        text += &format!("    try: {remedy}\n");
    }
    text
}

/// What to do next, where the code alone says it.
fn next(code: &str) -> Option<&'static str> {
    Some(match code {
        "token_missing" | "token_unknown" | "token_expired" | "token_revoked"
        | "token_wrong_kind" => "`stead login --server URL --token-file FILE`, or set STEAD_TOKEN",
        "forbidden" => "ask an owner for a token with a role that may: `stead tokens create`",
        "approval_stale" => "read the plan as it is now: `stead runs show RUN --plans`",
        "run_excluded" => "wait for that run, or stop it: `stead runs watch`, `stead runs cancel`",
        "behind" | "unavailable" | "busy" | "stopping" | "conflict" => "again in a moment",
        _ => return None,
    })
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Problem(problem) => Failure::Refused(problem),
            ClientError::Unreachable { .. } | ClientError::Undecodable { .. } => {
                Failure::Unreachable(error.to_string())
            }
            ClientError::Setup(said) => Failure::Usage(said),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Failure::BrokenPipe
        } else {
            Failure::Usage(error.to_string())
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Failure::Unreachable(format!("the server's answer cannot be read: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_place_the_remedy_and_what_to_do_next() {
        let mut problem = Problem::new(422, "config_invalid", "The config is wrong", "1 error");
        problem.errors.push(FieldProblem {
            file: Some("components/db.toml".into()),
            line: Some(3),
            column: Some(8),
            message: "no component `vpc`".into(),
            remedy: Some("declare it, or remove the dependency".into()),
            ..FieldProblem::default()
        });
        let failure = Failure::Refused(Box::new(problem));
        let expected = "error: 1 error (config_invalid)\n  components/db.toml:3:8: no component `vpc`\n    \
                        try: declare it, or remove the dependency\n";
        assert_eq!((failure.text().as_str(), failure.code()), (expected, 2));
    }

    #[test]
    fn each_kind_of_failure_has_its_exit_code() {
        let refused =
            |status| Failure::Refused(Box::new(Problem::new(status, "x", "x", "x"))).code();
        assert_eq!([401, 404, 409, 413, 503].map(refused), [4, 3, 4, 2, 5]);
        assert_eq!(Failure::Unreachable(String::new()).code(), 5);
        assert_eq!(Failure::Outcome(String::new()).code(), 1);
    }
}
