//! Calls of an agent.
use axum::http::Method;
use domain::{
    enrolment::Purpose,
    ids::{InstallId, JobId, RunnerId, SessionId},
};
use ed25519_dalek::SigningKey;
use schemas::{
    runner::{InstallPublicKeys, sign_install_keys},
    token::{AUD_SESSION, AUD_TOKEN, SessionAssertion, TokenAssertion, sign},
};
use serde_json::{Value, json};
use ulid::Ulid;

use super::{TestResponse, World};

/// Enrolled agent.
#[derive(Clone)]
pub(crate) struct Agent {
    pub id: RunnerId,
    pub token: String,
    pub key: SigningKey,
    /// Id of the agent's process, which changes with a restart.
    pub process_id: String,
    pub session: Option<(SessionId, u64)>,
}

/// Public keys of an install, signed by the identity key.
pub(crate) fn install_keys(generation: u32, identity: &SigningKey) -> InstallPublicKeys {
    let signing = SigningKey::from_bytes(&[9; 32]).verifying_key();
    sign_install_keys(generation, "11".repeat(32), hex::encode(signing.as_bytes()), identity)
}

impl World {
    /// Enrols an agent of a new install.
    pub(crate) async fn agent(&self) -> (Agent, InstallId) {
        let install = self.install().await;
        (self.enrolled(Purpose::Install { install }).await, install)
    }

    pub(crate) async fn enrolled(&self, purpose: Purpose) -> Agent {
        let token = self.enrolment(purpose).await;
        let key = SigningKey::generate(&mut rand::rngs::OsRng);
        let response = self.enrol(&token, &key, purpose).await.ok();
        let id = response["runner"].as_str().unwrap().parse().unwrap();
        let token = self.token(id, &key).await;
        Agent { id, token, key, process_id: Ulid::new().to_string(), session: None }
    }

    pub(crate) async fn enrol(
        &self,
        token: &str,
        key: &SigningKey,
        purpose: Purpose,
    ) -> TestResponse {
        let mut body = json!({
            "token": token, "mode": "build", "version": "1.0.0",
            "identity_key": hex::encode(key.verifying_key().as_bytes()),
            "host": {"os": "linux", "arch": "x86_64"},
        });
        if matches!(purpose, Purpose::Install { .. }) {
            body["mode"] = "install".into();
            body["install_keys"] = json!(install_keys(1, key));
            body["stack_outputs"] = json!({"region": "eu-central-1"});
        }
        self.call(Method::POST, "/runner/v1/enrol", "", &body).await
    }

    pub(crate) fn assertion(&self, id: RunnerId, key: &SigningKey) -> String {
        let iat = self.app.now().timestamp();
        let (aud, jti) = (AUD_TOKEN.to_string(), Ulid::new().to_string());
        let generation = 1;
        sign(&TokenAssertion { sub: id, aud, jti, iat, exp: iat + 60, generation }, key).unwrap()
    }

    /// Signed assertion that opens a session on a host with a journal.
    pub(crate) fn opening(
        &self,
        agent: &Agent,
        session: SessionId,
        (boot_id, journal_id): (&str, &str),
    ) -> String {
        let (iat, aud) = (self.app.now().timestamp(), AUD_SESSION.to_string());
        let (boot_id, journal_id) = (boot_id.to_string(), journal_id.to_string());
        let (sub, exp, process_id) = (agent.id, iat + 60, agent.process_id.clone());
        let opening =
            SessionAssertion { sub, aud, iat, exp, session, boot_id, journal_id, process_id };
        sign(&opening, &agent.key).unwrap()
    }

    pub(crate) async fn token(&self, id: RunnerId, key: &SigningKey) -> String {
        let body = json!({"assertion": self.assertion(id, key)});
        let response = self.call(Method::POST, "/runner/v1/token", "", &body).await.ok();
        response["access_token"].as_str().unwrap().to_string()
    }

    /// Opens a session with this journal. Returns the response.
    pub(crate) async fn open(&self, agent: &mut Agent, journal_id: &str, journal: Value) -> Value {
        let session = SessionId(Ulid::new());
        let assertion = self.opening(agent, session, ("boot", journal_id));
        let response = self.open_with(&assertion, journal).await.ok();
        agent.session = Some((session, response["generation"].as_u64().unwrap()));
        agent.token = response["access_token"].as_str().unwrap().to_string();
        response
    }

    pub(crate) async fn open_with(&self, assertion: &str, journal: Value) -> TestResponse {
        let body = json!({
            "assertion": assertion, "pid": 1, "version": "1.0.0",
            "protocol": {"min": 1, "max": 1}, "slots": 4, "journal": journal,
            "capabilities": ["build", "plan", "apply", "action", "preflight"],
        });
        self.call(Method::POST, "/runner/v1/sessions", "", &body).await
    }

    pub(crate) async fn poll(&self, agent: &Agent, wait: u64, more: Value) -> TestResponse {
        let (session, generation) = agent.session.unwrap();
        let mut body = json!({"session_id": session, "generation": generation, "free_slots": 4});
        for (key, value) in more.as_object().cloned().unwrap_or_default() {
            body[key] = value;
        }
        let path = format!("/runner/v1/poll?wait={wait}");
        self.call(Method::POST, &path, &agent.token, &body).await
    }

    pub(crate) async fn claim(&self, agent: &Agent, job: JobId, claim_id: &str) -> TestResponse {
        let (session, generation) = agent.session.unwrap();
        let body = json!({"session_id": session, "generation": generation, "claim_id": claim_id});
        let path = format!("/runner/v1/jobs/{job}/claim");
        self.call(Method::PUT, &path, &agent.token, &body).await
    }

    pub(crate) async fn report(
        &self,
        agent: &Agent,
        job: JobId,
        execution: &str,
        seq: u64,
        body: Value,
    ) -> TestResponse {
        let mut report = json!({"execution": execution, "seq": seq, "log_len": 0});
        for (key, value) in body.as_object().cloned().unwrap_or_default() {
            report[key] = value;
        }
        let path = format!("/runner/v1/jobs/{job}/events");
        self.call(Method::POST, &path, &agent.token, &report).await
    }
}
