//! Failures of a command: exit code, message and remedy.
use std::process::ExitCode;

use crate::client::ClientError;
use schemas::problem::{FieldProblem, Problem};

use crate::render::Output;

/// Text for `--help`. Scripts may rely on the exit codes.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  the operation failed: a run failed, a log does not verify
  2  invalid command line, file or input
  3  not found
  4  rejected: forbidden, or not possible in the current state
  5  the server is unreachable or cannot respond now
  6  drift was found (`stead installs drift`)
  130  interrupted with Ctrl-C
With --output json or ndjson, an error is one line of JSON on standard error: problem details with `exit_code`.";

#[derive(Debug)]
pub enum Failure {
    /// The operation itself failed, for example a run or a verification.
    Outcome(String),
    /// A check found drift.
    Drift(String),
    /// The command line or its input is invalid.
    Usage(String),
    NotFound(String),
    Problem(Box<Problem>),
    /// The server did not respond, or its response is unreadable.
    Unreachable(String),
    /// The user stopped the command.
    Interrupted(String),
    /// The input is invalid, and the command has already printed its findings.
    AlreadyPrinted,
    /// The reader closed standard output, for example `head`.
    BrokenPipe,
}

impl Failure {
    /// Exit code of the command, as `EXIT_CODES` describes it.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Outcome(_) => 1,
            Failure::Usage(_) | Failure::AlreadyPrinted => 2,
            Failure::NotFound(_) => 3,
            Failure::Problem(problem) => match problem.status {
                400 | 413 | 415 | 422 => 2,
                404 => 3,
                500..=599 => 5,
                _ => 4,
            },
            Failure::Unreachable(_) => 5,
            Failure::Drift(_) => 6,
            Failure::Interrupted(_) => 130,
            Failure::BrokenPipe => 0,
        }
    }

    /// Prints the failure to standard error, and returns its exit code.
    pub fn report(&self, output: Output) -> ExitCode {
        let text = match output {
            Output::Table => self.text(),
            Output::Json | Output::Ndjson => self.json(),
        };
        if !text.is_empty() {
            eprint!("{text}");
        }
        ExitCode::from(self.code())
    }

    /// Failure as one line of problem details. Empty if there is nothing to print.
    pub(crate) fn json(&self) -> String {
        let (code, title, message) = match self {
            Failure::Problem(problem) => {
                let problem = problem.as_ref().clone().with("exit_code", self.code());
                return format!("{}\n", serde_json::json!(problem));
            }
            Failure::AlreadyPrinted | Failure::BrokenPipe => return String::new(),
            Failure::Outcome(message) => ("outcome", "The operation failed", message),
            Failure::Drift(message) => ("drift", "Drift was found", message),
            Failure::Usage(message) => ("usage", "Invalid command line, file or input", message),
            Failure::NotFound(message) => ("not_found", "Not found", message),
            Failure::Unreachable(message) => ("unreachable", "The server is unreachable", message),
            Failure::Interrupted(message) => ("interrupted", "Interrupted", message),
        };
        let (detail, remedy) =
            message.split_once("\n  try: ").map_or((message.as_str(), None), |(d, r)| (d, Some(r)));
        let kind = format!("urn:stead:problem:{code}");
        let mut problem = serde_json::json!({
            "type": kind, "title": title, "code": code, "detail": detail.trim_end(), "exit_code": self.code(),
        });
        if let Some(remedy) = remedy {
            problem["remedy"] = remedy.trim_end().into();
        }
        format!("{problem}\n")
    }

    /// Failure as text for a terminal. Empty if there is nothing to print.
    pub fn text(&self) -> String {
        match self {
            Failure::Outcome(message) | Failure::Usage(message) | Failure::NotFound(message) => {
                format!("error: {message}\n")
            }
            Failure::Interrupted(message) | Failure::Drift(message) => format!("{message}\n"),
            Failure::Unreachable(message) => format!(
                "error: {message}\n  try: check that the server runs (`stead up` starts a server), \
                 or select another server with `stead login --server URL`\n"
            ),
            Failure::Problem(problem) => problem_text(problem),
            Failure::AlreadyPrinted | Failure::BrokenPipe => String::new(),
        }
    }
}

fn problem_text(problem: &Problem) -> String {
    let detail = if problem.detail.is_empty() { &problem.title } else { &problem.detail };
    let mut text = format!("error: {detail} ({})\n", problem.code);
    for error in &problem.errors {
        text += &finding_text(error);
    }
    if let Some(hint) = remedy_for(&problem.code) {
        text += &format!("  try: {hint}\n");
    }
    text
}

/// Formats a finding as `file:line:column: message`, with its remedy on the next line.
pub(crate) fn finding_text(error: &FieldProblem) -> String {
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

/// Remedy for a problem code. `None` if the code has no general remedy.
fn remedy_for(code: &str) -> Option<&'static str> {
    Some(match code {
        "token_missing"
        | "token_unknown"
        | "token_expired"
        | "token_revoked"
        | "token_type_mismatch" => {
            "run `stead login --server URL --token-file FILE`, or set STEAD_TOKEN"
        }
        "forbidden" => {
            "ask an owner to grant the role: `stead tokens grant-role PRINCIPAL --role ROLE`"
        }
        "approval_stale" => "read the current plan: `stead runs show RUN --plans`",
        "run_in_progress" => {
            "wait for that run or cancel it: `stead runs watch RUN`, `stead runs cancel RUN --reason …`"
        }
        "projection_lag" | "unavailable" | "busy" | "shutting_down" | "conflict" => {
            "run the same command again in a few seconds"
        }
        _ => return None,
    })
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Problem(problem) => Failure::Problem(problem),
            ClientError::Unreachable { .. } | ClientError::Undecodable { .. } => {
                Failure::Unreachable(error.to_string())
            }
            ClientError::Setup(message) => Failure::Usage(message),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Failure::BrokenPipe
        } else {
            Failure::Usage(format!("a file operation failed: {error}"))
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Failure::Unreachable(format!("cannot read the response of the server: {error}"))
    }
}

/// Prints an error of the command line, in the format of `--output`.
pub fn report_usage(error: &clap::Error) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match (error.exit_code(), requested_output(&arguments)) {
        (2, output @ (Output::Json | Output::Ndjson)) => {
            let message = error.render().to_string();
            Failure::Usage(message.trim_start_matches("error: ").trim_end().into()).report(output)
        }
        (code, _) => {
            // Ignores the error: the reader may have closed the output.
            let _ = error.print();
            ExitCode::from(u8::try_from(code).unwrap_or(2))
        }
    }
}

/// Value of `--output` on a command line that clap rejected.
fn requested_output(arguments: &[String]) -> Output {
    let after =
        |name: &str| arguments.windows(2).find(|two| two[0] == name).map(|two| two[1].as_str());
    let joined = arguments.iter().find_map(|argument| argument.strip_prefix("--output="));
    match joined.or(after("--output")).or(after("-o")) {
        Some("json" | "sarif") => Output::Json,
        Some("ndjson") => Output::Ndjson,
        Some(_) | None => Output::Table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_format_is_read_from_an_invalid_command_line() {
        let of =
            |line: &str| requested_output(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(of("-o json runs list acme"), Output::Json);
        assert_eq!(of("runs list acme --output=ndjson"), Output::Ndjson);
        assert_eq!(of("runs list acme"), Output::Table);
    }

    #[test]
    fn problem_text_contains_field_and_remedy() {
        let mut problem = Problem::new(422, "config_invalid", "The config is wrong", "1 error");
        problem.errors.push(FieldProblem {
            file: Some("components/db.toml".into()),
            line: Some(3),
            column: Some(8),
            message: "no component `vpc`".into(),
            remedy: Some("declare it, or remove the dependency".into()),
            ..FieldProblem::default()
        });
        let failure = Failure::Problem(Box::new(problem));
        let expected = "error: 1 error (config_invalid)\n  components/db.toml:3:8: no component `vpc`\n    \
                        try: declare it, or remove the dependency\n";
        assert_eq!((failure.text().as_str(), failure.code()), (expected, 2));
    }

    #[test]
    fn json_failure_is_one_line_of_problem_details() {
        let read = |failure: Failure| -> serde_json::Value {
            let text = failure.json();
            assert_eq!(text.lines().count(), 1, "{text}");
            serde_json::from_str(&text).unwrap()
        };
        let problem = Problem::new(409, "approval_stale", "Stale", "another plan waits");
        let refused = read(Failure::Problem(Box::new(problem)));
        assert_eq!(
            (&refused["code"], &refused["exit_code"]),
            (&"approval_stale".into(), &4.into())
        );
        let ours = read(Failure::NotFound("no run yet\n  try: `stead installs show acme`".into()));
        assert_eq!((&ours["code"], &ours["exit_code"]), (&"not_found".into(), &3.into()));
        assert_eq!(ours["detail"], "no run yet");
        assert_eq!(ours["remedy"], "`stead installs show acme`");
        assert_eq!(Failure::BrokenPipe.json(), "");
    }

    #[test]
    fn every_failure_kind_has_an_exit_code() {
        let refused =
            |status| Failure::Problem(Box::new(Problem::new(status, "x", "x", "x"))).code();
        assert_eq!([401, 404, 409, 413, 503].map(refused), [4, 3, 4, 2, 5]);
        assert_eq!(Failure::Unreachable(String::new()).code(), 5);
        assert_eq!(Failure::Outcome(String::new()).code(), 1);
    }
}
