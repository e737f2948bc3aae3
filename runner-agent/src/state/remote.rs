//! Calls for the encrypted state of a component on the server.
use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use reqwest::{
    RequestBuilder, Response, StatusCode,
    header::{HeaderMap, IF_NONE_MATCH, RETRY_AFTER},
};
use schemas::{
    manifest::StateVersion,
    problem::Problem,
    runner::{STATE_CIPHERTEXT_BYTES, STATE_RECORDED, STATE_VERSION, StateHead, StateUpload},
};
use serde_json::Value;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::StateError;

/// Time for the response to a write of Terraform, which continues from the disk afterwards.
const SHORT: Duration = Duration::from_secs(2);
/// Bytes that a connection transfers in a second while Terraform waits.
const RATE: u64 = 4 << 20;
/// Time for a response without a state, and between two parts of a state.
const IDLE: Duration = Duration::from_secs(15);
/// Bytes that the slowest connection transfers in a second.
const LOWEST_RATE: u64 = 128 << 10;
/// Time after which no further attempt begins, and a job or a decision fails.
const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// Pauses between two attempts, unless the server requests a longer one.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
/// Longest pause that a server can request.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Largest response without a state in bytes.
const BODY: usize = 16 << 10;
/// Highest serial that is accepted from the server's word about its log. A server that lies must not
/// raise the serial so far that later writes of Terraform are invalid.
const HIGHEST_RECORDED: u64 = 1 << 62;

/// Server's store of the state of one component.
#[derive(Clone)]
pub struct Remote {
    http: reqwest::Client,
    url: String,
    token: String,
    patience: Duration,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Newest version on the server.
#[derive(Debug)]
pub(super) enum Newest {
    /// The server has no state of the component.
    None,
    /// The server has the version of the request.
    Same(StateHead),
    Other(StateHead, Vec<u8>),
}

impl Newest {
    pub(super) fn head(&self) -> Option<&StateHead> {
        match self {
            Newest::None => None,
            Newest::Same(head) | Newest::Other(head, _) => Some(head),
        }
    }
}

/// Reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RemoteError {
    /// The server did not respond, or cannot process the call now. A repetition can succeed.
    #[error("the server did not respond: {why}")]
    Unreachable { why: String, after: Option<Duration> },
    /// The server has another state, which is newer or excludes this one.
    #[error("the server rejected the state: {0}")]
    Rejected(String),
    /// The execution has ended for the server. The runner's own token can still upload its state.
    #[error(
        "the server takes no state of this execution, because its job or its install has ended: {0}"
    )]
    Ended(String),
    /// The server refuses the call, whatever the state is. A repetition does not help.
    #[error("the server refused the call: {0}")]
    Refused(String),
    /// The server refuses the state because of its size.
    #[error("the server rejected the state: {0}")]
    TooLarge(String),
}

impl Remote {
    pub fn new(http: reqwest::Client, base: &str, token: &str, component: &str) -> Self {
        let url = format!("{base}/runner/v1/state/{component}");
        Remote { http, url, token: token.into(), patience: PATIENCE }
    }

    /// Waits at most this long for a server that does not respond.
    pub fn with_patience(self, patience: Duration) -> Self {
        Remote { patience, ..self }
    }

    /// Stores a version while Terraform waits. Returns the newest version afterwards.
    pub(super) async fn put(
        &self,
        upload: &StateUpload,
        ciphertext: bytes::Bytes,
    ) -> Result<StateHead, RemoteError> {
        self.put_within(SHORT, RATE, upload, ciphertext).await
    }

    async fn put_within(
        &self,
        least: Duration,
        rate: u64,
        upload: &StateUpload,
        ciphertext: bytes::Bytes,
    ) -> Result<StateHead, RemoteError> {
        let version = serde_json::to_string(upload).map_err(unreachable)?;
        let limit = least + Duration::from_secs(ciphertext.len() as u64 / rate);
        let request = self.http.put(&self.url).header(STATE_VERSION, version);
        let response = self.send(request.timeout(limit).body(ciphertext), limit).await?;
        serde_json::from_slice(&short_body(response).await?).map_err(unreachable)
    }

    /// Returns the newest version, without its content if it has this digest, and the newest version
    /// that the vendor's log names.
    async fn newest_once(
        &self,
        known: Option<&str>,
    ) -> Result<(Newest, Option<StateVersion>), RemoteError> {
        let mut request = self.http.get(&self.url);
        if let Some(known) = known {
            request = request.header(IF_NONE_MATCH, format!("\"{known}\""));
        }
        let response = self.send(request, IDLE).await?;
        let recorded = recorded(response.headers());
        let newest = match response.status() {
            StatusCode::NO_CONTENT => Newest::None,
            StatusCode::NOT_MODIFIED => Newest::Same(head(response.headers())?),
            _ => Newest::Other(head(response.headers())?, ciphertext(response).await?),
        };
        Ok((newest, recorded))
    }

    async fn send(
        &self,
        request: RequestBuilder,
        limit: Duration,
    ) -> Result<Response, RemoteError> {
        let sent = timeout(limit, request.bearer_auth(&self.token).send()).await;
        let response = sent.map_err(unreachable)?.map_err(unreachable)?;
        let status = response.status();
        // A proxy that answers itself sends other statuses, or no version.
        match status.is_success() || status == StatusCode::NOT_MODIFIED {
            true => Ok(response),
            false => Err(rejection(response).await),
        }
    }

    /// Returns the newest version. Waits for a server that does not respond: a job never begins with
    /// a state that may be an older one.
    pub(super) async fn newest(
        &self,
        known: Option<&str>,
        waiting: &Waiting<'_>,
    ) -> Result<Newest, StateError> {
        Ok(self.patiently(waiting, || self.newest_once(known)).await?.0)
    }

    /// Returns the newest version, and the newest one that the vendor's log names.
    pub(super) async fn newest_and_recorded(
        &self,
        waiting: &Waiting<'_>,
    ) -> Result<(Newest, Option<StateVersion>), StateError> {
        self.patiently(waiting, || self.newest_once(None)).await
    }

    /// Stores a version before the job begins. Waits for a server that does not respond.
    pub(super) async fn put_patiently(
        &self,
        upload: &StateUpload,
        ciphertext: bytes::Bytes,
        waiting: &Waiting<'_>,
    ) -> Result<StateHead, StateError> {
        let is_unanswered = AtomicBool::new(false);
        let (unanswered, ciphertext) = (&is_unanswered, &ciphertext);
        let put = move || async move {
            let sent = self.put_within(IDLE, LOWEST_RATE, upload, ciphertext.clone()).await;
            if matches!(sent, Err(RemoteError::Unreachable { .. })) {
                unanswered.store(true, Ordering::Relaxed);
            }
            sent
        };
        let stored = self.patiently(waiting, put).await;
        // The rejection of a repeated decision does not tell whether an earlier attempt was stored.
        match stored {
            Err(StateError::Blocked(why) | StateError::Refused(why))
                if upload.is_decided && is_unanswered.load(Ordering::Relaxed) =>
            {
                let source = io::Error::other("an earlier attempt may have stored the choice");
                Err(StateError::Io { context: why, source })
            }
            stored => stored,
        }
    }

    async fn patiently<T, F: Future<Output = Result<T, RemoteError>>>(
        &self,
        waiting: &Waiting<'_>,
        call: impl Fn() -> F,
    ) -> Result<T, StateError> {
        let (begun, mut pause, mut is_first) = (Instant::now(), PAUSES[0], true);
        let component = waiting.component;
        loop {
            let called = waiting.cancel.run_until_cancelled(call()).await;
            let context = || format!("cannot use the state of {component}");
            let stopped = || StateError::Stopped { context: context() };
            let (why, after) = match called.ok_or_else(stopped)? {
                Ok(done) => return Ok(done),
                Err(RemoteError::Unreachable { why, after }) => (why, after),
                Err(error @ RemoteError::Rejected(_)) => {
                    return Err(StateError::Blocked(format!(
                        "cannot use the state of {component}: {error}"
                    )));
                }
                Err(
                    error @ (RemoteError::Ended(_)
                    | RemoteError::Refused(_)
                    | RemoteError::TooLarge(_)),
                ) => {
                    return Err(StateError::Refused(format!(
                        "cannot use the state of {component}: {error}"
                    )));
                }
            };
            if begun.elapsed() >= self.patience {
                let why = format!(
                    "the server did not respond ({why}), so it is unknown whether it has a newer one; retry when it responds"
                );
                return Err(StateError::io(context())(io::Error::other(why)));
            }
            if std::mem::take(&mut is_first) {
                (waiting.line)(&format!("waiting for the server to read the state: {why}"));
            }
            let wait = after.map_or(pause, |after| after.clamp(pause, LONGEST_PAUSE));
            let slept = waiting.cancel.run_until_cancelled(tokio::time::sleep(wait)).await;
            slept.ok_or_else(stopped)?;
            pause = (2 * pause).min(PAUSES[1]);
        }
    }
}

/// Component that waits for the server, and how it can be stopped.
pub(super) struct Waiting<'a> {
    pub component: &'a str,
    pub cancel: &'a CancellationToken,
    pub line: &'a (dyn Fn(&str) + Sync),
}

fn head(headers: &HeaderMap) -> Result<StateHead, RemoteError> {
    let header = headers.get(STATE_VERSION).and_then(|value| value.to_str().ok());
    let head = header.and_then(|json| serde_json::from_str::<StateHead>(json).ok());
    let head = head.filter(StateHead::is_valid);
    let why = "its response names no version".to_owned();
    head.ok_or(RemoteError::Unreachable { why, after: None })
}

/// Returns the version that the server's log names, if it is plausible.
fn recorded(headers: &HeaderMap) -> Option<StateVersion> {
    let json = headers.get(STATE_RECORDED)?.to_str().ok()?;
    let version: StateVersion = serde_json::from_str(json).ok()?;
    (version.is_valid() && version.serial <= HIGHEST_RECORDED).then_some(version)
}

/// Reads a state. A connection below the lowest rate is too slow, also if it never stands still.
async fn ciphertext(mut response: Response) -> Result<Vec<u8>, RemoteError> {
    let too_large = || RemoteError::TooLarge("it is larger than 100 MiB".into());
    let announced = response.content_length();
    let size = announced.unwrap_or(STATE_CIPHERTEXT_BYTES);
    if size > STATE_CIPHERTEXT_BYTES {
        return Err(too_large());
    }
    let read = async {
        let capacity = usize::try_from(announced.unwrap_or_default()).unwrap_or_default();
        let mut ciphertext = Vec::with_capacity(capacity);
        loop {
            let part = timeout(IDLE, response.chunk()).await.map_err(unreachable)?;
            let Some(part) = part.map_err(unreachable)? else { return Ok(ciphertext) };
            if (ciphertext.len() + part.len()) as u64 > STATE_CIPHERTEXT_BYTES {
                return Err(too_large());
            }
            ciphertext.extend_from_slice(&part);
        }
    };
    let limit = IDLE + Duration::from_secs(size / LOWEST_RATE);
    timeout(limit, read).await.map_err(unreachable)?
}

/// Reads a response that contains no state.
async fn short_body(mut response: Response) -> Result<Vec<u8>, RemoteError> {
    let read = async {
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(unreachable)? {
            if body.len() + part.len() > BODY {
                let why = format!("its response is larger than {BODY} bytes");
                return Err(RemoteError::Unreachable { why, after: None });
            }
            body.extend_from_slice(&part);
        }
        Ok(body)
    };
    timeout(IDLE, read).await.map_err(unreachable)?
}

/// Returns the error of a response. Only responses of the server about this state are final: a
/// proxy, another token or a later attempt can change all others. No status means that there is no
/// state.
async fn rejection(response: Response) -> RemoteError {
    let (status, after) = (response.status(), retry_after(response.headers()));
    let body = short_body(response).await.unwrap_or_default();
    let Ok(problem) = serde_json::from_slice::<Problem>(&body) else {
        // The response of a proxy.
        return RemoteError::Unreachable { why: status.to_string(), after };
    };
    match (status.as_u16(), problem.code.as_str()) {
        (409, "state_conflict") | (412, "state_fenced") => {
            RemoteError::Rejected(problem.to_string())
        }
        (412, "fenced") => RemoteError::Ended(problem.to_string()),
        (409, "state_in_use") => RemoteError::Refused(match problem.more.get("job") {
            Some(Value::String(job)) => {
                format!("{job} is running on the component; wait for its end and retry")
            }
            Some(_) | None => problem.to_string(),
        }),
        (403, "forbidden") => RemoteError::Refused(problem.to_string()),
        (413, "too_large") => RemoteError::TooLarge(problem.to_string()),
        _ => RemoteError::Unreachable { why: problem.to_string(), after },
    }
}

/// Returns the seconds in `Retry-After`. A date is ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

fn unreachable(error: impl std::error::Error) -> RemoteError {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let why = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
    RemoteError::Unreachable { why, after: None }
}
