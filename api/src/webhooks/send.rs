//! Requests to endpoints, signed as *Standard Webhooks* specifies
//! (<https://www.standardwebhooks.com>): the header `webhook-signature` contains `v1,` and the
//! base64 HMAC-SHA256 over `id.timestamp.body` for each valid secret.
use std::{error::Error, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{DateTime, Utc};
use hmac::{Hmac, Mac as _};
use reqwest::{
    Client, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
    redirect::Policy,
};
use sha2::Sha256;

use super::{Sending, address::Destination};
use crate::{
    problem::Problem,
    reach::{GuardedResolver, Reachable},
};

/// Time for a request, from the resolution of the name to the response.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Message about one event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    /// Id of the event. Receivers recognize repeated messages by it.
    pub id: String,
    pub body: String,
}

/// Result of a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Delivered(u16),
    /// The endpoint did not accept the message. `after` is the wait that it requested.
    Failed {
        status: Option<u16>,
        why: String,
        after: Option<Duration>,
    },
    /// The endpoint permanently accepts no message (410).
    Gone(u16),
}

/// Sends messages.
#[derive(Debug, Clone)]
pub(crate) struct Sender {
    client: Client,
    reachable: Reachable,
}

impl Sender {
    pub(crate) fn new(reachable: Reachable) -> Result<Sender, Problem> {
        // Fails if the process has a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .timeout(TIMEOUT)
            // A redirect could lead to another address, and turns a POST into a GET.
            .redirect(Policy::none())
            // A proxy of the environment would resolve the name itself.
            .no_proxy()
            .dns_resolver(std::sync::Arc::new(GuardedResolver(reachable)))
            .user_agent(concat!("stead/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Sender { client: client.map_err(Problem::internal)?, reachable })
    }

    /// Sends a message, and waits for the response of the endpoint.
    pub(crate) async fn send(
        &self,
        to: &Sending,
        message: &Message,
        now: DateTime<Utc>,
    ) -> Outcome {
        let failed = |status: Option<StatusCode>, why: String, after| Outcome::Failed {
            status: status.map(|status| status.as_u16()),
            why,
            after,
        };
        let url = match Destination::parse(&to.url, self.reachable) {
            Ok(destination) => destination.url,
            Err(why) => return failed(None, format!("the URL is not permitted: {why}"), None),
        };
        let timestamp = now.timestamp();
        let signatures: Vec<String> =
            to.secrets.iter().map(|secret| signature(secret, message, timestamp)).collect();
        let request = self
            .client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", &message.id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signatures.join(" "))
            .body(message.body.clone());
        match request.send().await {
            Ok(response) if response.status().is_success() => {
                Outcome::Delivered(response.status().as_u16())
            }
            Ok(response) if response.status() == StatusCode::GONE => {
                Outcome::Gone(response.status().as_u16())
            }
            Ok(response) => {
                let after = response.headers().get(RETRY_AFTER);
                let after = after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
                let status = response.status();
                let why = format!("the endpoint responded {status}");
                failed(Some(status), why, after.map(Duration::from_secs))
            }
            Err(error) => failed(None, cause(&error.without_url()), None),
        }
    }
}

/// Returns the reason of a failed request, without the URL, which can be secret.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("the endpoint did not respond within {} s", TIMEOUT.as_secs());
    }
    let causes = std::iter::successors(error.source(), |cause: &&dyn Error| (*cause).source());
    let last = causes.last().map_or_else(|| error.to_string(), ToString::to_string);
    format!("cannot connect to the endpoint: {last}")
}

fn signature(secret: &[u8], message: &Message, timestamp: i64) -> String {
    // HMAC accepts keys of every length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return String::new() };
    for part in [message.id.as_bytes(), b".", timestamp.to_string().as_bytes(), b"."] {
        mac.update(part);
    }
    mac.update(message.body.as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Example of the reference implementation of Standard Webhooks.
    #[test]
    fn a_signature_equals_that_of_the_reference_implementation() {
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let message = Message {
            id: "msg_p5jXN8AQM9LWM0D4loKWxJek".into(),
            body: r#"{"test": 2432232314}"#.into(),
        };
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(signature(&secret, &message, 1_614_265_330), expected);
    }
}
