//! The runner of an install, which signs its reports.
use ed25519_dalek::SigningKey;
use proof::{digest_text, dsse, plan, report};
use serde_json::{Value, json};
use ulid::Ulid;

/// Id of the runner in the example event of a claim.
pub const RUNNER: &str = "rnr_00000000000000000000000008";

/// Ids of a job and its execution, and its manifest.
pub type Of<'a> = (&'a str, &'a str, &'a str);

pub struct Signer {
    pub id: String,
    /// Public key, as in the log.
    pub public: String,
    key: SigningKey,
}

impl Signer {
    /// The runner of an install.
    pub fn of(install: u64) -> Signer {
        let key = SigningKey::from_bytes(&proof::sha256(&install.to_be_bytes()));
        let public = hex::encode(key.verifying_key().as_bytes());
        Signer { id: format!("rnr_{}", Ulid(u128::from(install) + 1)), public, key }
    }

    /// Signs the plan of a job.
    pub fn plan(&self, (job, execution, manifest): Of<'_>, payload: &mut Value) {
        let of = &mut payload["plan"];
        let [file, summary] = ["file", "summary"].map(|name| hash(of[name].as_str().unwrap()));
        let tool = of["tool"].as_str().unwrap();
        let digest = plan::digest_of(&file, &summary, &hash(manifest), tool);
        let signature = plan::sign(&plan::statement(&digest, job, execution), &self.key);
        of["digest"] = digest_text(&digest).into();
        of["signature"] = signature.into();
    }

    /// Signs the result of a job. `log` has the length and digest of its log.
    pub fn end(&self, (job, execution, manifest): Of<'_>, log: &Value, payload: &mut Value) {
        let statement = json!({
            "version": 1, "runner": self.id, "job": job, "execution": execution, "outcome": "succeeded",
            "exit_code": 0, "manifest": manifest,
            "log": {"length_bytes": log["length_bytes"], "sha256": log["sha256"], "omitted_bytes": 0},
        });
        let statement = String::from_utf8(proof::canonical::json(&statement).unwrap()).unwrap();
        let envelope = dsse::sign(report::STATEMENT, statement.as_bytes(), &self.key);
        let signature = &envelope.signatures[0].sig;
        payload["signed"] =
            json!({"statement": statement, "key": self.public, "signature": signature});
    }
}

fn hash(digest: &str) -> proof::Hash {
    hex::decode(digest.strip_prefix("sha256:").unwrap()).unwrap().try_into().unwrap()
}
