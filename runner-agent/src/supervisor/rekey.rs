//! The identity key is replaced every 30 days, or when the server asks for it.
//!
//! The new key is on disk before the server hears of it, and the former one is there until the server has answered:
//! whichever of the two the server knows, this runner has it, whenever it is cut off.
use std::sync::Arc;

use chrono::TimeDelta;
use reqwest::Method;
use schemas::{
    runner::{RekeyRequest, Rekeyed},
    token::{self, AUD_REKEY, Rekey},
};
use tracing::{info, warn};

use super::Agent;
use crate::{client::Ask, host, journal::Fact, keys::Keys};

/// How long a key is used.
const AGE: TimeDelta = TimeDelta::days(30);

/// Whether another key is wanted.
pub(super) fn is_due(agent: &Agent) -> bool {
    let age = host::server_now() - agent.keys.identity.now().made_at;
    agent.state().rekey_wanted || age >= AGE || has_begun(agent)
}

/// Replace the key, beside everything else.
pub(super) fn begin(agent: &Arc<Agent>) {
    let agent = Arc::clone(agent);
    tokio::spawn(async move { replace(&agent).await });
}

/// What was begun is ended before the key is used to open a session: it may be the former one already.
pub(super) async fn finish(agent: &Agent) {
    if has_begun(agent) {
        replace(agent).await;
    }
}

/// Whether there is a key to be, which the server may know already.
pub(super) fn has_begun(agent: &Agent) -> bool {
    Keys::next(&agent.data).is_ok_and(|next| next.is_some())
}

async fn replace(agent: &Agent) {
    // A grant names the key: none is on its way while that changes.
    let _no_claim_meanwhile = agent.claims.lock().await;
    if !is_due(agent) {
        return;
    }
    let former_key = Some(agent.keys.identity_hex());
    match replaced(agent).await {
        Ok(identity_key) => {
            agent.state().rekey_wanted = false;
            info!("This runner has a new identity key, {identity_key}");
            if let Err(error) = agent.journal.write(Fact::Rekeyed { identity_key, former_key }) {
                warn!(%error, "The journal cannot be written");
            }
            // Whoever has the new key only can verify all that was written under the former one.
            agent.sign_journal();
        }
        Err(error) => warn!("The identity key stays what it was: {error:#}"),
    }
}

async fn replaced(agent: &Agent) -> anyhow::Result<String> {
    let next = Keys::begin_next(&agent.data)?;
    let identity_key = next.public_hex();
    let ask = || {
        let now = host::server_now().timestamp();
        let rekey = Rekey {
            sub: agent.identity.runner,
            aud: AUD_REKEY.into(),
            iat: now,
            exp: now + 60,
            identity_key: identity_key.clone(),
        };
        let assertion = agent.keys.identity.assert(&rekey)?;
        let body = RekeyRequest { assertion, proof: token::sign(&rekey, &next.key)? };
        Ok(Ask::json(Method::POST, "/runner/v1/rekey", &body)?.without_token().idle())
    };
    let mut answer = agent.client.send_anew::<Rekeyed>(ask).await;
    if let Some(refused) = answer.as_ref().err().filter(|no| no.code() == "clock_skew") {
        agent.client.correct_clock(refused);
        answer = agent.client.send_anew(ask).await;
    }
    let known = answer?.body.map(|body| body.identity_key);
    anyhow::ensure!(known.as_ref() == Some(&identity_key), "the server speaks of another key");
    agent.keys.take_next(&agent.data, next.clone())?;
    Ok(identity_key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervisor::tests::agent_with_signals;

    /// What a server says that knows this key from now on.
    fn knows(key: &str) -> &'static str {
        let runner = "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let time = schemas::moment::text(&host::now());
        let body = format!(
            r#"200 OK|{{"runner":"{runner}","identity_key":"{key}","server_time":"{time}"}}"#
        );
        body.leak()
    }

    #[tokio::test]
    async fn a_lost_answer_loses_no_key() {
        // given a key that was begun, and a server whose first answer is lost
        let (_dir, agent, ..) = agent_with_signals(vec![]).await;
        assert!(!is_due(&agent));
        let next = Keys::begin_next(&agent.data).unwrap().public_hex();
        assert_ne!(agent.keys.identity_hex(), next);
        // when another life of the agent asks again, then the new key is used and the former one is gone
        let (client, asked) = crate::client::scripted::scripted(vec!["", knows(&next)]).await;
        let agent = agent_that_calls(&agent, client);
        finish(&agent).await;
        assert_eq!(asked.lock().unwrap().len(), 2);
        assert_eq!(agent.keys.identity_hex(), next);
        assert_eq!(Keys::open(&agent.data).unwrap().identity_hex(), next);
        assert!(!is_due(&agent));
    }

    #[tokio::test]
    async fn a_refusal_leaves_the_key_and_keeps_what_was_begun() {
        let (_dir, agent, ..) = agent_with_signals(vec![]).await;
        let problem = r#"401 Unauthorized|{"status":401,"code":"assertion_invalid","title":"no","detail":"no","type":"about:blank"}"#;
        let (client, _) = crate::client::scripted::scripted(vec![problem]).await;
        let agent = agent_that_calls(&agent, client);
        let former = agent.keys.identity_hex();
        agent.state().rekey_wanted = true;
        replace(&agent).await;
        assert_eq!(agent.keys.identity_hex(), former);
        assert!(has_begun(&agent) && is_due(&agent));
    }

    #[tokio::test]
    async fn a_key_of_thirty_days_is_replaced() {
        // given a key that was made 30 days ago
        let (_dir, agent, ..) = agent_with_signals(vec![]).await;
        let hex = hex::encode(agent.keys.identity.now().key.to_bytes());
        let old = (host::server_now() - AGE).timestamp();
        std::fs::write(agent.data.path("keys/identity"), format!("{hex} {old}")).unwrap();
        assert!(!is_due(&agent));
        let next = Keys::begin_next(&agent.data).unwrap().public_hex();
        std::fs::rename(agent.data.path("keys/identity.next"), agent.data.path("kept")).unwrap();
        let (client, asked) = crate::client::scripted::scripted(vec![knows(&next)]).await;
        let agent = agent_that_calls(&agent, client);
        assert!(is_due(&agent) && !has_begun(&agent));
        // when it is looked, then another one is in its place
        std::fs::rename(agent.data.path("kept"), agent.data.path("keys/identity.next")).unwrap();
        replace(&agent).await;
        assert!(asked.lock().unwrap()[0].starts_with("POST /runner/v1/rekey"));
        assert_eq!(agent.keys.identity_hex(), next);
        assert!(!is_due(&agent));
    }

    #[tokio::test]
    async fn who_is_not_wanted_looks_whether_it_is_known_by_the_key_to_be() {
        // given an agent whose server took the key that was begun, and whose access is over
        let (_dir, agent, ..) = agent_with_signals(vec![]).await;
        let next = Keys::begin_next(&agent.data).unwrap().public_hex();
        let problem = r#"401 Unauthorized|{"status":401,"code":"token_unknown","title":"no","detail":"no","type":"about:blank"}"#;
        let answers = vec![problem, problem, knows(&next)];
        let (client, asked) = crate::client::scripted::scripted(answers).await;
        let agent = agent_that_calls(&agent, client);
        agent.state().session = Some(crate::supervisor::tests::opened());
        // when it polls
        let polls = tokio::spawn({
            let agent = Arc::clone(&agent);
            async move { crate::supervisor::poll::run(&agent).await }
        });
        // then it asks under both keys and has the new one
        crate::supervisor::tests::until("the new key", || agent.keys.identity_hex() == next).await;
        let asked = asked.lock().unwrap().join("\n");
        assert!(asked.contains("POST /runner/v1/rekey"), "{asked}");
        polls.abort();
    }

    fn agent_that_calls(agent: &Arc<Agent>, client: crate::client::Client) -> Arc<Agent> {
        let keys = Keys::open(&agent.data).unwrap();
        let (identity, settings) = (agent.identity.clone(), agent.settings.clone());
        let (server_keys, stopping) = (agent.state().server_keys.clone(), agent.stopping.clone());
        Agent::new((agent.data.clone(), keys, identity), client, server_keys, settings, stopping)
            .unwrap()
    }
}
