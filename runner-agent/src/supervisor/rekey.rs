//! Replaces the identity key every 30 days, or when the server requests it.
//!
//! The new key is on disk before the server receives it, and the former key stays on disk until the
//! server has responded. So the runner has the key that the server knows, even if the exchange is
//! interrupted.
use std::sync::Arc;

use chrono::TimeDelta;
use reqwest::Method;
use schemas::{
    runner::{RekeyRequest, Rekeyed},
    token::{self, AUD_REKEY, RekeyAssertion},
};
use tracing::{info, warn};

use super::Agent;
use crate::{client::ApiRequest, host, journal::JournalEvent, keys::Keys, tasks};

/// Age at which a key is replaced.
const MAX_KEY_AGE: TimeDelta = TimeDelta::days(30);

/// Returns whether the key must be replaced.
pub(super) fn is_due(agent: &Agent) -> bool {
    let age = host::server_now() - agent.keys.identity.now().made_at;
    agent.state().rekey_requested || age >= MAX_KEY_AGE || is_pending(agent)
}

/// Replaces the key in the background.
pub(super) fn begin(agent: &Arc<Agent>) {
    let agent = Arc::clone(agent);
    tasks::detach("rekey", async move { replace(&agent).await });
}

/// Completes a pending replacement before a session is opened: the server may already have replaced
/// the current key.
pub(super) async fn complete_pending(agent: &Agent) {
    if is_pending(agent) {
        replace(agent).await;
    }
}

/// Returns whether a replacement is pending. The server may already know the new key.
pub(super) fn is_pending(agent: &Agent) -> bool {
    Keys::next(&agent.data).is_ok_and(|next| next.is_some())
}

async fn replace(agent: &Agent) {
    // A grant names the key, so no claim may be in flight during the change.
    let _no_claim_meanwhile = agent.claim_lock.lock().await;
    if !is_due(agent) {
        return;
    }
    let former_key = Some(agent.keys.identity_hex());
    match exchange_key(agent).await {
        Ok(identity_key) => {
            agent.state().rekey_requested = false;
            info!(identity_key, "Replaced the identity key");
            if let Err(error) =
                agent.journal.write(JournalEvent::Rekeyed { identity_key, former_key })
            {
                warn!(%error, "Cannot write the journal");
            }
            // A head under the new key covers all entries, so the new key alone can verify the
            // earlier entries, too.
            agent.sign_journal();
        }
        Err(error) => warn!(error = format!("{error:#}"), "Cannot replace the identity key"),
    }
}

async fn exchange_key(agent: &Agent) -> anyhow::Result<String> {
    let next = Keys::begin_next(&agent.data)?;
    let identity_key = next.public_hex();
    let request = || {
        let now = host::server_now().timestamp();
        let rekey = RekeyAssertion {
            sub: agent.identity.runner,
            aud: AUD_REKEY.into(),
            iat: now,
            exp: now + 60,
            identity_key: identity_key.clone(),
        };
        let assertion = agent.keys.identity.assert(&rekey)?;
        let body = RekeyRequest { assertion, proof: token::sign(&rekey, &next.key)? };
        Ok(ApiRequest::json(Method::POST, "/runner/v1/rekey", &body)?.without_token().idle())
    };
    let mut response = agent.client.send_signed::<Rekeyed>(request).await;
    if let Some(rejection) = response.as_ref().err().filter(|error| error.code() == "clock_skew") {
        agent.client.correct_clock(rejection);
        response = agent.client.send_signed(request).await;
    }
    let confirmed = response?.body.map(|body| body.identity_key);
    anyhow::ensure!(
        confirmed.as_ref() == Some(&identity_key),
        "cannot replace the identity key: the server confirmed another key"
    );
    agent.keys.activate_next(&agent.data, next.clone())?;
    Ok(identity_key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervisor::tests::agent_with_signals;

    /// Returns the response of a server that accepts this key.
    fn accepting_response(key: &str) -> &'static str {
        let runner = "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let time = schemas::moment::text(&host::now());
        let body = format!(
            r#"200 OK|{{"runner":"{runner}","identity_key":"{key}","server_time":"{time}"}}"#
        );
        body.leak()
    }

    #[tokio::test]
    async fn a_lost_response_loses_no_key() {
        // given a pending key, and a server whose first response is lost
        let (_dir, agent, ..) = agent_with_signals(vec![]).await;
        assert!(!is_due(&agent));
        let next = Keys::begin_next(&agent.data).unwrap().public_hex();
        assert_ne!(agent.keys.identity_hex(), next);
        // when a restarted agent sends the request again, then it uses the new key and the former
        // one is removed
        let (client, requests) =
            crate::client::scripted::scripted(vec!["", accepting_response(&next)]).await;
        let agent = agent_that_calls(&agent, client);
        complete_pending(&agent).await;
        assert_eq!(requests.lock().unwrap().len(), 2);
        assert_eq!(agent.keys.identity_hex(), next);
        assert_eq!(Keys::open(&agent.data).unwrap().identity_hex(), next);
        assert!(!is_due(&agent));
    }

    #[tokio::test]
    async fn a_rejection_keeps_the_current_and_the_pending_key() {
        let (_dir, agent, ..) = agent_with_signals(vec![]).await;
        let problem = r#"401 Unauthorized|{"status":401,"code":"assertion_invalid","title":"no","detail":"no","type":"about:blank"}"#;
        let (client, _) = crate::client::scripted::scripted(vec![problem]).await;
        let agent = agent_that_calls(&agent, client);
        let former = agent.keys.identity_hex();
        agent.state().rekey_requested = true;
        replace(&agent).await;
        assert_eq!(agent.keys.identity_hex(), former);
        assert!(is_pending(&agent) && is_due(&agent));
    }

    #[tokio::test]
    async fn a_key_of_thirty_days_is_replaced() {
        // given a key that was made 30 days ago
        let (_dir, agent, ..) = agent_with_signals(vec![]).await;
        let hex = hex::encode(agent.keys.identity.now().key.to_bytes());
        let old = (host::server_now() - MAX_KEY_AGE).timestamp();
        std::fs::write(agent.data.path("keys/identity"), format!("{hex} {old}")).unwrap();
        assert!(!is_due(&agent));
        let next = Keys::begin_next(&agent.data).unwrap().public_hex();
        std::fs::rename(agent.data.path("keys/identity.next"), agent.data.path("kept")).unwrap();
        let (client, requests) =
            crate::client::scripted::scripted(vec![accepting_response(&next)]).await;
        let agent = agent_that_calls(&agent, client);
        assert!(is_due(&agent) && !is_pending(&agent));
        // when the agent checks the key's age, then a new key replaces it
        std::fs::rename(agent.data.path("kept"), agent.data.path("keys/identity.next")).unwrap();
        replace(&agent).await;
        assert!(requests.lock().unwrap()[0].starts_with("POST /runner/v1/rekey"));
        assert_eq!(agent.keys.identity_hex(), next);
        assert!(!is_due(&agent));
    }

    #[tokio::test]
    async fn a_rejected_runner_tries_its_pending_key() {
        // given an agent whose server knows only the pending key and rejects the current one
        let (_dir, agent, ..) = agent_with_signals(vec![]).await;
        let next = Keys::begin_next(&agent.data).unwrap().public_hex();
        let problem = r#"401 Unauthorized|{"status":401,"code":"token_unknown","title":"no","detail":"no","type":"about:blank"}"#;
        let responses = vec![problem, problem, accepting_response(&next)];
        let (client, requests) = crate::client::scripted::scripted(responses).await;
        let agent = agent_that_calls(&agent, client);
        agent.state().session = Some(crate::supervisor::tests::opened());
        // when it polls
        let polls = tokio::spawn({
            let agent = Arc::clone(&agent);
            async move { crate::supervisor::poll::run(&agent).await }
        });
        // then it tries both keys and keeps the new one
        crate::supervisor::tests::until("the new key", || agent.keys.identity_hex() == next).await;
        let requests = requests.lock().unwrap().join("\n");
        assert!(requests.contains("POST /runner/v1/rekey"), "{requests}");
        polls.abort();
    }

    fn agent_that_calls(agent: &Arc<Agent>, client: crate::client::Client) -> Arc<Agent> {
        let keys = Keys::open(&agent.data).unwrap();
        let (identity, settings) = (agent.identity.clone(), agent.settings.clone());
        let (server_keys, stopping) = (agent.state().server_keys.clone(), agent.stop_level.clone());
        Agent::new((agent.data.clone(), keys, identity), client, server_keys, settings, stopping)
            .unwrap()
    }
}
