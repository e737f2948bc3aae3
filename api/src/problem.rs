//! Every refusal of the two APIs: one closed list of codes, one shape (RFC 9457).
//!
//! A handler answers `Answer<T>`; whatever went wrong below it becomes a [`Problem`] by `?`. What the
//! machine says about itself (a database error, a broken file) is logged and never sent.
use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemas::problem::{FieldProblem, PROBLEM_JSON};
use serde_json::Value;

/// What a handler gives back.
pub type Answer<T> = Result<Json<T>, Problem>;

macro_rules! codes {
    ($($name:ident = $status:literal $code:literal, $title:literal;)*) => {
        /// Why a call was refused, as a word that programs may rely on. Append-only.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $title] $name,)*
        }
        impl Code {
            /// Every code there is.
            pub const ALL: &[Code] = &[$(Code::$name,)*];
            /// The word on the wire.
            pub fn word(self) -> &'static str {
                match self { $(Code::$name => $code,)* }
            }
            /// The HTTP status.
            pub fn status(self) -> u16 {
                match self { $(Code::$name => $status,)* }
            }
            /// The sentence that is the same every time.
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)* }
            }
        }
    };
}

codes! {
    BadRequest = 400 "bad_request", "The request cannot be read";
    InvalidJson = 400 "invalid_json", "The body is not the JSON that this call takes";
    DigestMismatch = 400 "digest_mismatch", "The bytes are not what their digest says";
    BadCursor = 400 "bad_cursor", "The cursor is not one of ours";
    TokenMissing = 401 "token_missing", "The call needs a token";
    TokenUnknown = 401 "token_unknown", "The token is not known here";
    TokenExpired = 401 "token_expired", "The token has expired";
    TokenRevoked = 401 "token_revoked", "The token was revoked";
    TokenWrongKind = 401 "token_wrong_kind", "The token is for another purpose";
    AssertionInvalid = 401 "assertion_invalid", "The assertion does not prove who calls";
    AssertionReplayed = 401 "assertion_replayed", "The assertion was used before";
    ClockSkew = 401 "clock_skew", "The caller's clock and ours are too far apart";
    ExecutionStale = 401 "execution_stale", "A newer execution holds this job";
    Forbidden = 403 "forbidden", "The caller's roles do not allow this";
    RunnerRevoked = 403 "runner_revoked", "The runner was revoked";
    NotOffered = 403 "not_offered", "The job was not offered to this runner";
    NotFound = 404 "not_found", "There is no such thing";
    MethodNotAllowed = 405 "method_not_allowed", "The path does not take this method";
    Conflict = 409 "conflict", "Others changed the same thing at the same moment";
    Refused = 409 "refused", "What is asked is not possible now";
    NameTaken = 409 "name_taken", "The name is taken";
    NothingToDo = 409 "nothing_to_do", "What is asked is so already";
    AlreadyEnded = 409 "already_ended", "What should change is over";
    NoRunner = 409 "no_runner", "The install has no runner yet";
    Deprovisioned = 409 "deprovisioned", "Nothing of the install is left";
    RunExcluded = 409 "run_excluded", "Another run of the install excludes this one";
    ApprovalStale = 409 "approval_stale", "The plan is no longer the one that was shown";
    EnrolmentUsed = 409 "enrolment_used", "The enrolment token was used with another key";
    SessionSuperseded = 409 "session_superseded", "A newer session of this runner exists";
    SessionUnknown = 409 "session_unknown", "The session is not known; open another one";
    SessionUnsure = 409 "session_unsure", "The runner does not speak of work that it has";
    ClaimedByOther = 409 "claimed_by_other", "Another runner took the job";
    SeqGap = 409 "seq_gap", "A report is missing before this one";
    SeqConflict = 409 "seq_conflict", "Another report has this number";
    LogDivergence = 409 "log_divergence", "The log bytes differ from those that are kept";
    Cancelled = 410 "cancelled", "The job was cancelled";
    Expired = 410 "expired", "It is too late";
    FencedOut = 412 "fenced_out", "The execution is not the job's current one";
    LogMismatch = 412 "log_mismatch", "The log's digest is not the one that was announced";
    TooLarge = 413 "too_large", "What was sent is too long";
    UploadQuota = 413 "upload_quota", "The quota of uploaded bytes is used up";
    UnsupportedMediaType = 415 "unsupported_media_type", "The body is of a type that this call does not take";
    LogGap = 416 "log_gap", "Log bytes are missing before these";
    RangeNotSatisfiable = 416 "range_not_satisfiable", "The log has no such bytes";
    StatementInvalid = 422 "statement_invalid", "The runner's signature does not say what the report says";
    Invalid = 422 "invalid", "What was sent is not valid";
    IdempotencyMismatch = 422 "idempotency_mismatch", "The idempotency key was used for another request";
    ProtocolUnsupported = 426 "protocol_unsupported", "Runner and server have no version of the protocol in common";
    RateLimited = 429 "rate_limited", "Too many calls";
    Internal = 500 "internal", "The server made a mistake";
    Unavailable = 503 "unavailable", "The database does not answer";
    Busy = 503 "busy", "The server has more to do than it takes on";
    Stopping = 503 "stopping", "The server is stopping";
    Behind = 503 "behind", "The view has not reached the position";
    LogStale = 503 "log_stale", "The server has not read the log for too long";
    CallerUnreadable = 503 "caller_unreadable", "An event about the caller cannot be read";
    ArchiveMissing = 503 "archive_missing", "An archive of the log is missing";
    LogFull = 507 "log_full", "The job's log quota is used up";
}

/// A refusal on its way to the caller.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The word, and with it status and title.
    pub code: Code,
    /// What happened this time, in one sentence with the remedy where there is one.
    pub detail: String,
    /// Each thing that is wrong with what was sent.
    pub errors: Vec<FieldProblem>,
    /// What this code adds to the body.
    pub more: Vec<(&'static str, Value)>,
    /// Headers of the answer.
    pub headers: Vec<(header::HeaderName, HeaderValue)>,
}

impl Problem {
    /// A refusal with its reason.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let (errors, more, headers) = (Vec::new(), Vec::new(), Vec::new());
        Problem { code, detail: detail.into(), errors, more, headers }
    }

    /// 404: there is no such thing, whatever it is.
    pub fn not_found(what: impl std::fmt::Display) -> Self {
        Problem::new(Code::NotFound, format!("{what} does not exist"))
    }

    /// 500: the reason goes to our log, the caller learns only that it was us.
    pub fn internal(reason: impl std::fmt::Display) -> Self {
        tracing::error!(reason = %reason, "A call failed for a reason of ours: {reason}");
        Problem::new(Code::Internal, "the server's own log says why")
    }

    /// 422 with everything that is wrong.
    pub fn invalid(detail: impl Into<String>, errors: Vec<FieldProblem>) -> Self {
        Problem { errors, ..Problem::new(Code::Invalid, detail) }
    }

    /// Add a member that belongs to this code, such as `expected`.
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.more.push((key, value.into()));
        self
    }

    /// Add a header, such as `Range`. One that is no header is left out.
    pub fn header(mut self, name: header::HeaderName, value: impl std::fmt::Display) -> Self {
        if let Ok(value) = HeaderValue::from_str(&value.to_string()) {
            self.headers.push((name, value));
        }
        self
    }

    /// Say when to try again, seconds from now.
    pub fn retry_after(self, seconds: u64) -> Self {
        self.header(header::RETRY_AFTER, seconds)
    }

    /// The body.
    pub fn body(&self) -> schemas::problem::Problem {
        let (status, code, title) = (self.code.status(), self.code.word(), self.code.title());
        let mut body = schemas::problem::Problem::new(status, code, title, &self.detail);
        body.errors.clone_from(&self.errors);
        for (key, value) in &self.more {
            body = body.with(key, value.clone());
        }
        body
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status());
        let mut response = (status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), Json(self.body()))
            .into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if self.code.status() == 401 {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        response
    }
}

/// Whether the database is away or busy, as opposed to refusing what it was told: then the same words may
/// be taken later.
pub(crate) fn is_away(error: &sqlx::Error) -> bool {
    use sqlx::Error::{Io, PoolClosed, PoolTimedOut, Protocol, Tls, WorkerCrashed};
    // Connection, read-only, conflicts, resources, locks, operator, disk: classes of SQLSTATE.
    const LATER: [&str; 7] = ["08", "25", "40", "53", "55", "57", "58"];
    match error {
        Io(_) | Tls(_) | Protocol(_) | PoolTimedOut | PoolClosed | WorkerCrashed => true,
        sqlx::Error::Database(said) => {
            said.code().is_some_and(|code| LATER.iter().any(|class| code.starts_with(class)))
        }
        // The enum is sqlx's and may grow.
        _ => false,
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        let down = is_away(&error);
        // 22021: what was sent has a character that no text has, NUL above all.
        if error.as_database_error().is_some_and(|said| said.code().as_deref() == Some("22021")) {
            let detail = "a name or filter has a character that no text has (NUL); leave it out";
            return Problem::new(Code::BadRequest, detail);
        }
        if !down {
            return Problem::internal(error);
        }
        tracing::warn!(reason = %error, "The database does not answer: {error}");
        Problem::new(Code::Unavailable, "the database does not answer; try again").retry_after(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_word_of_its_own_and_an_error_status() {
        let mut words: Vec<_> = Code::ALL.iter().map(|code| code.word()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!((400..600).contains(&code.status()), "{}", code.word());
            assert!(!code.title().ends_with('.'), "{}", code.title());
        }
    }

    /// Programs branch on these: a word that was released keeps its status and its meaning.
    #[test]
    fn the_codes_are_the_ones_that_are_kept() {
        let line = |code: &Code| format!("{} {:<24}{}\n", code.status(), code.word(), code.title());
        let table: String = Code::ALL.iter().map(line).collect();
        domain::testing::golden("problem-codes.txt", &table);
    }

    #[tokio::test]
    async fn a_problem_is_problem_json_with_what_its_code_adds() {
        let problem = Problem::new(Code::SeqGap, "report 3 is missing").with("expected", 3);
        let response = problem.retry_after(1).into_response();
        assert_eq!(response.status(), 409);
        assert_eq!(response.headers()[header::CONTENT_TYPE], PROBLEM_JSON);
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        let bytes = axum::body::to_bytes(response.into_body(), 4096).await.unwrap();
        let body: schemas::problem::Problem = serde_json::from_slice(&bytes).unwrap();
        assert_eq!((body.code.as_str(), body.number("expected")), ("seq_gap", Some(3)));
    }
}
