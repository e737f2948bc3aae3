//! Converts errors of logs into problems.
use super::{HeaderError, LogError};
use crate::problem::{Code, Problem};

impl From<HeaderError> for Problem {
    fn from(error: HeaderError) -> Problem {
        Problem::new(Code::BadRequest, error.to_string())
    }
}

impl From<LogError> for Problem {
    fn from(error: LogError) -> Problem {
        let message = error.to_string();
        match error {
            LogError::Gap { have } => {
                let problem = Problem::new(Code::LogGap, message).with("committed_bytes", have);
                match have.checked_sub(1) {
                    Some(last) => {
                        problem.header(axum::http::header::RANGE, format!("bytes=0-{last}"))
                    }
                    // No bytes are stored. Without a range the runner starts from offset 0.
                    None => problem,
                }
            }
            LogError::Divergence => Problem::new(Code::LogDivergence, message),
            LogError::Quota => Problem::new(Code::LogQuotaExceeded, message),
            LogError::TooLarge => Problem::new(Code::TooLarge, message),
            LogError::Erased => Problem::new(Code::Fenced, message),
            LogError::Busy | LogError::ConcurrentWrite => {
                Problem::new(Code::Busy, message).retry_after(1)
            }
            LogError::Unwritten(reason) => {
                tracing::warn!(error = %reason, "Cannot store a log chunk");
                let detail =
                    "cannot store the chunk: the database is unavailable; send the chunk again";
                Problem::new(Code::Unavailable, detail).retry_after(2)
            }
            LogError::Database(error) => error.into(),
            LogError::Damaged(error) => Problem::internal(error),
        }
    }
}
