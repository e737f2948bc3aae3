//! Token of a cluster in a file that is replaced before the token expires.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use zeroize::Zeroizing;

use super::{
    aws::{self, EksCluster},
    metadata::{self, Environment, Metadata},
    write,
};
use crate::{host, plugins::contract::Background};

/// Token of the pod that the runner runs in, which the cluster renews.
const POD_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// Validity that a token of the pod has at least, before the file is read again.
const POD_VALIDITY: TimeDelta = TimeDelta::minutes(2);
/// Shortest and longest time between two tokens.
const SHORTEST: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(10 * 60);

/// Credential for the API server of a cluster.
pub(super) struct Token {
    pub value: Zeroizing<String>,
    pub expires: DateTime<Utc>,
}

/// Origin of the tokens of a cluster.
#[derive(Debug)]
pub(super) enum TokenSource {
    Eks(EksCluster),
    Google,
    Azure,
    /// Service account of the runner's pod.
    Pod,
}

impl TokenSource {
    /// Returns the source outside of a cloud, if the runner is in a pod.
    pub(super) fn of_pod() -> Option<Self> {
        Path::new(POD_TOKEN).exists().then_some(TokenSource::Pod)
    }

    /// Returns a new token.
    pub(super) async fn token(
        &self,
        env: &Environment,
        metadata: &Metadata,
    ) -> Result<Token, String> {
        match self {
            TokenSource::Eks(cluster) => {
                let credentials = aws::credentials(env, metadata).await?;
                Ok(cluster.token(&credentials, host::now()))
            }
            TokenSource::Google => metadata::google(env, metadata, host::now()).await,
            TokenSource::Azure => {
                metadata::azure(metadata::AZURE_KUBERNETES, env, metadata, host::now()).await
            }
            TokenSource::Pod => {
                let value = fs::read_to_string(POD_TOKEN);
                let value = value.map_err(|e| format!("cannot read the token of the pod: {e}"))?;
                let value = Zeroizing::new(value.trim().to_owned());
                Ok(Token { value, expires: host::now() + POD_VALIDITY })
            }
        }
    }

    /// Remedy if no token can be created.
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            TokenSource::Eks(_) => {
                "give the runner's instance a role, or pass AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY with --pass-env"
            }
            TokenSource::Google => "give the runner's instance a service account",
            TokenSource::Azure => "give the runner's instance a managed identity",
            TokenSource::Pod => "check the service account of the runner's pod",
        }
    }
}

/// Supply of tokens.
pub(super) trait Tokens {
    async fn next(&self) -> Result<Token, String>;
}

/// Tokens of a source, under the credentials of a job.
pub(super) struct JobTokens<'a> {
    pub source: &'a TokenSource,
    pub env: &'a Environment,
    pub metadata: &'a Metadata,
}

impl Tokens for JobTokens<'_> {
    async fn next(&self) -> Result<Token, String> {
        self.source.token(self.env, self.metadata).await
    }
}

/// Time, and waiting for it.
pub(super) trait Clock {
    fn now(&self) -> DateTime<Utc>;
    async fn sleep(&self, duration: Duration);
}

/// Clock of the host.
pub(super) struct HostClock;

impl Clock for HostClock {
    fn now(&self) -> DateTime<Utc> {
        host::now()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// File with the token of a job.
#[derive(Debug)]
pub(super) struct TokenFile {
    pub path: PathBuf,
}

impl TokenFile {
    /// Replaces the token. It is redacted before any process can read it.
    pub(super) fn store(&self, token: &Token, background: &dyn Background) -> io::Result<()> {
        background.secret(token.value.clone());
        write(&self.path, &token.value).map_err(io::Error::other)
    }

    /// Replaces the token each time before it expires. Never returns: the caller drops the task at
    /// the end of the job.
    pub(super) async fn keep_fresh<C: Clock, T: Tokens>(
        &self,
        mut expires: DateTime<Utc>,
        background: &dyn Background,
        clock: &C,
        tokens: &T,
    ) -> std::convert::Infallible {
        loop {
            clock.sleep(wait(clock.now(), expires)).await;
            let stored = match tokens.next().await {
                Ok(token) => {
                    let stored = self.store(&token, background).map_err(|e| e.to_string());
                    stored.map(|()| token.expires)
                }
                Err(why) => Err(why),
            };
            match stored {
                Ok(later) => expires = later,
                Err(why) => background
                    .line(&format!("cannot renew the token of the cluster, retrying: {why}")),
            }
        }
    }
}

/// Returns the time until the next token: half of the remaining validity, so that a failure leaves
/// time for further attempts.
fn wait(now: DateTime<Utc>, expires: DateTime<Utc>) -> Duration {
    let left = (expires - now).to_std().unwrap_or_default();
    (left / 2).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use std::{
        cell::{Cell, RefCell},
        os::unix::fs::PermissionsExt as _,
        sync::Mutex,
        task::{Context, Waker},
    };

    use schemas::runner::StateHead;

    use super::*;

    /// Clock that a sleep advances. It never returns from the last sleep.
    struct TestClock {
        now: Cell<DateTime<Utc>>,
        sleeps: RefCell<Vec<u64>>,
        last: usize,
    }

    impl Clock for TestClock {
        fn now(&self) -> DateTime<Utc> {
            self.now.get()
        }

        async fn sleep(&self, duration: Duration) {
            if self.sleeps.borrow().len() == self.last {
                std::future::pending::<()>().await;
            }
            self.sleeps.borrow_mut().push(duration.as_secs());
            self.now.set(self.now.get() + duration);
        }
    }

    #[derive(Debug, Default)]
    struct Seen {
        secrets: Mutex<Vec<String>>,
        lines: Mutex<Vec<String>>,
    }

    impl Background for Seen {
        fn secret(&self, value: Zeroizing<String>) {
            self.secrets.lock().unwrap().push(value.to_string());
        }

        fn line(&self, text: &str) {
            self.lines.lock().unwrap().push(text.to_owned());
        }

        fn state(&self, _: &str, _: &StateHead) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn start() -> DateTime<Utc> {
        "2026-11-24T09:30:00Z".parse().unwrap()
    }

    /// Supply whose tokens have numbers. Some numbers fail.
    struct TestTokens<'c, F> {
        clock: &'c TestClock,
        number: Cell<usize>,
        validity: TimeDelta,
        fails: F,
    }

    impl<F: Fn(usize) -> bool> Tokens for TestTokens<'_, F> {
        async fn next(&self) -> Result<Token, String> {
            self.number.set(self.number.get() + 1);
            if (self.fails)(self.number.get()) {
                return Err("the metadata service is not reachable".to_owned());
            }
            let value = Zeroizing::new(format!("token-{}", self.number.get()));
            Ok(Token { value, expires: self.clock.now() + self.validity })
        }
    }

    /// Runs the loop for some sleeps, and returns them with what was seen and the file's content.
    fn run(
        sleeps: usize,
        validity: TimeDelta,
        fails: impl Fn(usize) -> bool,
    ) -> (Vec<u64>, Seen, String) {
        let dir = tempfile::tempdir().unwrap();
        let file = TokenFile { path: dir.path().join("token") };
        let seen = Seen::default();
        let clock = TestClock { now: Cell::new(start()), sleeps: RefCell::default(), last: sleeps };
        let first = Token { value: Zeroizing::new("token-0".into()), expires: start() + validity };
        file.store(&first, &seen).unwrap();
        let tokens = TestTokens { clock: &clock, number: Cell::new(0), validity, fails };
        let renewal = file.keep_fresh(first.expires, &seen, &clock, &tokens);
        // Nothing waits for real time: the loop runs until the last sleep.
        let mut context = Context::from_waker(Waker::noop());
        assert!(std::pin::pin!(renewal).poll(&mut context).is_pending());
        let mode = fs::metadata(&file.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = fs::read_to_string(&file.path).unwrap();
        (clock.sleeps.into_inner(), seen, text)
    }

    #[test]
    fn a_token_is_replaced_before_it_expires() {
        let (sleeps, seen, text) = run(3, TimeDelta::minutes(14), |_| false);
        assert_eq!(sleeps, [7 * 60, 7 * 60, 7 * 60]);
        assert_eq!(text, "token-3");
        let secrets = seen.secrets.into_inner().unwrap();
        assert_eq!(secrets, ["token-0", "token-1", "token-2", "token-3"]);
        assert!(seen.lines.into_inner().unwrap().is_empty());
    }

    #[test]
    fn a_failed_renewal_is_repeated_while_the_token_is_valid() {
        let (sleeps, seen, text) = run(4, TimeDelta::minutes(14), |number| number < 3);
        assert_eq!(sleeps, [420, 210, 105, 420], "twice without a token, then a new one");
        assert_eq!(text, "token-4");
        let lines = seen.lines.into_inner().unwrap();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("cannot renew the token of the cluster"), "{lines:?}");
    }

    #[test]
    fn waits_are_limited() {
        let wait = |seconds| super::wait(start(), start() + TimeDelta::seconds(seconds));
        assert_eq!(wait(-60), SHORTEST, "an expired token");
        assert_eq!(wait(20), SHORTEST);
        assert_eq!(wait(100), Duration::from_secs(50));
        assert_eq!(wait(86_400), LONGEST);
    }
}
