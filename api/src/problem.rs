//! Problems of both APIs: one closed list of codes, one format (RFC 9457).
//!
//! A handler returns `ApiResult<T>`. The operator `?` converts an error of the called code to a
//! [`Problem`]. The details of an internal error are logged and not sent.
use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemas::problem::{FieldProblem, PROBLEM_JSON};
use serde_json::Value;

pub(crate) type ApiResult<T> = Result<Json<T>, Problem>;

macro_rules! codes {
    ($($name:ident = $status:literal $code:literal, $title:literal;)*) => {
        /// Code of a problem, for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $title] $name,)*
        }
        impl Code {
            pub const ALL: &[Code] = &[$(Code::$name,)*];
            /// Name on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $code,)* }
            }
            pub fn status(self) -> u16 {
                match self { $(Code::$name => $status,)* }
            }
            /// Text that is the same for every occurrence.
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)* }
            }
        }
    };
}

codes! {
    BadRequest = 400 "bad_request", "Malformed request";
    InvalidJson = 400 "invalid_json", "Invalid JSON body";
    DigestMismatch = 400 "digest_mismatch", "The bytes do not match their digest";
    InvalidCursor = 400 "invalid_cursor", "Invalid pagination cursor";
    TokenMissing = 401 "token_missing", "A token is required";
    TokenUnknown = 401 "token_unknown", "Unknown token";
    TokenExpired = 401 "token_expired", "Token expired";
    TokenRevoked = 401 "token_revoked", "Token revoked";
    TokenTypeMismatch = 401 "token_type_mismatch", "Wrong type of token";
    AssertionInvalid = 401 "assertion_invalid", "Invalid assertion";
    AssertionReplayed = 401 "assertion_replayed", "Assertion already used";
    ClockSkew = 401 "clock_skew", "The clocks of caller and server differ too much";
    ExecutionSuperseded = 401 "execution_superseded", "A newer execution has this job";
    Forbidden = 403 "forbidden", "Insufficient role";
    RunnerRevoked = 403 "runner_revoked", "Runner revoked";
    NotOffered = 403 "not_offered", "The job was not offered to this runner";
    NotFound = 404 "not_found", "Not found";
    MethodNotAllowed = 405 "method_not_allowed", "Method not allowed";
    BodyIncomplete = 408 "body_incomplete", "The request body did not arrive completely";
    Conflict = 409 "conflict", "Concurrent change";
    Rejected = 409 "rejected", "The current state does not allow the request";
    NameTaken = 409 "name_taken", "Name taken";
    NoChanges = 409 "no_changes", "No changes";
    AlreadyFinished = 409 "already_finished", "Already finished";
    NoRunner = 409 "no_runner", "The install has no runner";
    Deprovisioned = 409 "deprovisioned", "The install is deprovisioned";
    RunInProgress = 409 "run_in_progress", "Another run of the install is in progress";
    ApprovalStale = 409 "approval_stale", "The plan has changed since it was read";
    EnrolmentRedeemed = 409 "enrolment_redeemed", "The enrolment token was used with another key";
    SessionSuperseded = 409 "session_superseded", "The runner has a newer session";
    SessionUnknown = 409 "session_unknown", "Unknown session: open another session";
    SessionJournalRequired = 409 "session_journal_required", "Open another session and send the journal";
    ClaimedByOther = 409 "claimed_by_other", "Another runner claimed the job";
    StateConflict = 409 "state_conflict", "The stored state is newer or differs";
    StateInUse = 409 "state_in_use", "A job uses the state of the component";
    SeqGap = 409 "seq_gap", "An earlier report is missing";
    SeqConflict = 409 "seq_conflict", "A different report has this number";
    LogDivergence = 409 "log_divergence", "The log bytes differ from the stored bytes";
    Cancelled = 410 "cancelled", "Job cancelled";
    Expired = 410 "expired", "The offer or deadline has expired";
    Erased = 410 "erased", "The data was erased";
    Fenced = 412 "fenced", "The execution is not the current execution of its job";
    StateFenced = 412 "state_fenced", "A later execution uses the state of the component";
    LogMismatch = 412 "log_mismatch", "The log does not match its announced digest";
    TooLarge = 413 "too_large", "The request is too large";
    UploadQuotaExceeded = 413 "upload_quota_exceeded", "The upload quota is used up";
    UnsupportedMediaType = 415 "unsupported_media_type", "Unsupported media type";
    LogGap = 416 "log_gap", "Earlier log bytes are missing";
    RangeNotSatisfiable = 416 "range_not_satisfiable", "The log does not have this range";
    StatementInvalid = 422 "statement_invalid", "The signed statement does not match the report";
    Invalid = 422 "invalid", "Invalid input";
    UnknownComponent = 422 "unknown_component", "The install has no such component";
    IdempotencyMismatch = 422 "idempotency_mismatch", "The idempotency key was used for another request";
    ProtocolUnsupported = 426 "protocol_unsupported", "Runner and server have no protocol version in common";
    RateLimited = 429 "rate_limited", "Too many requests";
    Internal = 500 "internal", "Internal server error";
    Unavailable = 503 "unavailable", "The database does not respond";
    RegistryUnavailable = 503 "registry_unavailable", "The vendor's registry does not respond";
    Busy = 503 "busy", "The server is overloaded";
    ShuttingDown = 503 "shutting_down", "The server is shutting down";
    ProjectionLag = 503 "projection_lag", "The projection has not reached the position";
    LogStale = 503 "log_stale", "The server has not read the log recently enough";
    CallerUnreadable = 503 "caller_unreadable", "An event of the caller cannot be read";
    ArchiveMissing = 503 "archive_missing", "An archive of the log is missing";
    StateQuotaExceeded = 507 "state_quota_exceeded", "The state quota of the install is used up";
    LogQuotaExceeded = 507 "log_quota_exceeded", "Log quota exceeded";
}

/// Problem that is sent to the caller.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Code, with its status and title.
    pub code: Code,
    /// Cause of this occurrence, with the remedy.
    pub detail: String,
    /// Errors of single fields.
    pub errors: Vec<FieldProblem>,
    /// Extension members of the body that this problem code defines.
    pub members: Vec<(&'static str, Value)>,
    pub headers: Vec<(header::HeaderName, HeaderValue)>,
}

impl Problem {
    /// Creates a problem without field errors, members and headers.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let (errors, members, headers) = (Vec::new(), Vec::new(), Vec::new());
        Problem { code, detail: detail.into(), errors, members, headers }
    }

    /// 404 for a named object.
    pub fn not_found(what: impl std::fmt::Display) -> Self {
        Problem::new(Code::NotFound, format!("{what} does not exist"))
    }

    /// 500. The error is logged and not sent.
    pub fn internal(reason: impl std::fmt::Display) -> Self {
        tracing::error!(error = %reason, "Request failed: internal error");
        Problem::new(Code::Internal, "internal server error: see the server's log")
    }

    /// 422 for one field of the body.
    pub fn invalid_field(name: &str, message: &str, remedy: &str) -> Self {
        let error = FieldProblem {
            field: Some(name.into()),
            message: format!("{name} {message}"),
            remedy: Some(remedy.into()),
            ..FieldProblem::default()
        };
        Problem::invalid(format!("{name} {message}"), vec![error])
    }

    /// 422 with all errors.
    pub fn invalid(detail: impl Into<String>, errors: Vec<FieldProblem>) -> Self {
        Problem { errors, ..Problem::new(Code::Invalid, detail) }
    }

    /// Adds an extension member that this problem code defines, such as `expected`.
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.members.push((key, value.into()));
        self
    }

    /// Adds a header, such as `Range`. Skips an invalid value.
    pub fn header(mut self, name: header::HeaderName, value: impl std::fmt::Display) -> Self {
        if let Ok(value) = HeaderValue::from_str(&value.to_string()) {
            self.headers.push((name, value));
        }
        self
    }

    /// Adds `Retry-After`, in seconds.
    pub fn retry_after(self, seconds: u64) -> Self {
        self.header(header::RETRY_AFTER, seconds)
    }

    pub fn body(&self) -> schemas::problem::Problem {
        let (status, code, title) = (self.code.status(), self.code.as_str(), self.code.title());
        let mut body = schemas::problem::Problem::new(status, code, title, &self.detail);
        body.errors.clone_from(&self.errors);
        for (key, value) in &self.members {
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

/// Returns true if a retry may succeed, for example because the database is unavailable.
pub(crate) fn is_unavailable(error: &sqlx::Error) -> bool {
    use sqlx::Error::{Io, PoolClosed, PoolTimedOut, Protocol, Tls, WorkerCrashed};
    // SQLSTATE classes: connection, read-only, conflicts, resources, locks, operator, disk.
    const RETRYABLE: [&str; 7] = ["08", "25", "40", "53", "55", "57", "58"];
    let code = error.as_database_error().and_then(|error| error.code());
    let is_retryable = |code: &str| RETRYABLE.iter().any(|class| code.starts_with(class));
    matches!(error, Io(_) | Tls(_) | Protocol(_) | PoolTimedOut | PoolClosed | WorkerCrashed)
        || code.is_some_and(|code| is_retryable(&code))
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        let down = is_unavailable(&error);
        // Code 22021 means that the request has a character that text cannot have, usually NUL.
        if error
            .as_database_error()
            .is_some_and(|database_error| database_error.code().as_deref() == Some("22021"))
        {
            let detail =
                "invalid request: a name or filter contains a NUL character; remove the character";
            return Problem::new(Code::BadRequest, detail);
        }
        if !down {
            return Problem::internal(error);
        }
        tracing::warn!(%error, "Request failed: the database does not respond");
        Problem::new(Code::Unavailable, "request failed: the database does not respond; try again")
            .retry_after(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_have_error_statuses() {
        let mut words: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!((400..600).contains(&code.status()), "{}", code.as_str());
            assert!(!code.title().ends_with('.'), "{}", code.title());
        }
    }

    /// Programs depend on the codes: a released code keeps its status and its meaning.
    #[test]
    fn codes_match_the_golden_file() {
        let line =
            |code: &Code| format!("{} {:<26}{}\n", code.status(), code.as_str(), code.title());
        let table: String = Code::ALL.iter().map(line).collect();
        domain::testing::golden("problem-codes.txt", &table);
    }

    #[tokio::test]
    async fn problem_response_is_problem_json_with_extra_members() {
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
