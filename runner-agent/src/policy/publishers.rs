//! Trusted plugin publishers: the keys in the data directory and in the policy, and the key of
//! Stead's releases in a released runner. Without a key, the runner refuses every published plugin.
use std::io;

use schemas::{
    manifest::Manifest,
    plugin::artifact::{self, parse_publisher},
    runner::RefusedBy,
};

use super::{Policy, Refusal, names};
use crate::{
    data::{self, Data},
    journal::{Journal, JournalEvent},
};

/// File with the recorded keys, in the data directory.
const FILE: &str = "plugin-publishers.json";

/// Key that signs the plugins of Stead's releases. The build of a release sets it; a development
/// build has none.
pub const RELEASE: Option<&str> = option_env!("STEAD_RELEASE_PUBLISHER");

const _: () = assert!(
    is_absent_or_canonical(RELEASE),
    "STEAD_RELEASE_PUBLISHER is not a public key; set 64 lower-case hexadecimal digits, or unset it"
);

const fn is_absent_or_canonical(key: Option<&str>) -> bool {
    let Some(key) = key else { return true };
    let mut rest = key.as_bytes();
    if rest.len() != 64 {
        return false;
    }
    while let [first, more @ ..] = rest {
        if !matches!(*first, b'0'..=b'9' | b'a'..=b'f') {
            return false;
        }
        rest = more;
    }
    true
}

/// Returns the recorded keys.
pub fn recorded(data: &Data) -> io::Result<Vec<String>> {
    let keys: Vec<String> = data::read_json(&data.path(FILE))?.unwrap_or_default();
    keys.iter().map(|key| parse(key).map_err(io::Error::other)).collect()
}

/// Adds keys to the recorded ones, and journals the change. Returns whether a key is new.
pub fn record(data: &Data, keys: &[String]) -> io::Result<bool> {
    let mut all = recorded(data)?;
    let known = all.len();
    for key in keys {
        if !all.contains(key) {
            all.push(key.clone());
        }
    }
    if all.len() == known {
        return Ok(false);
    }
    Journal::open(data)?.write(JournalEvent::PublishersTrusted { publishers: all.clone() })?;
    data::replace_json(&data.path(FILE), &all)?;
    Ok(true)
}

/// Removes a recorded key, and journals the remaining ones. Returns whether the key was recorded.
pub fn remove(data: &Data, key: &str) -> io::Result<bool> {
    let all = recorded(data)?;
    let remaining: Vec<String> = all.iter().filter(|known| *known != key).cloned().collect();
    if remaining.len() == all.len() {
        return Ok(false);
    }
    data::replace_json(&data.path(FILE), &remaining)?;
    Journal::open(data)?.write(JournalEvent::PublishersTrusted { publishers: remaining })?;
    Ok(true)
}

/// Parses the public key of a publisher and returns its canonical form, in lower case.
pub fn parse(text: &str) -> Result<String, String> {
    match parse_publisher(text) {
        Some(_) => Ok(text.to_lowercase()),
        None => Err(format!(
            "{text:?} is not the public key of a publisher; pass 64 hexadecimal digits"
        )),
    }
}

impl Policy {
    /// Returns the keys that the policy trusts in addition to the recorded ones.
    pub fn plugin_publishers(&self) -> &[String] {
        &self.plugin_publishers
    }

    /// Returns true if the policy denies the key of Stead's releases.
    pub fn denies_release_publisher(&self) -> bool {
        self.deny_release_publisher
    }

    /// Refuses a published plugin of a publisher that is not trusted: not in `recorded`, not in the
    /// policy, and not the key of Stead's releases.
    pub fn allows_publisher(
        &self,
        manifest: &Manifest,
        recorded: &[String],
    ) -> Result<(), Refusal> {
        self.allows_publisher_or(manifest, recorded, RELEASE)
    }

    fn allows_publisher_or(
        &self,
        manifest: &Manifest,
        recorded: &[String],
        release: Option<&str>,
    ) -> Result<(), Refusal> {
        let Some(plugin) = &manifest.plugin.artifact else { return Ok(()) };
        let name = &manifest.plugin.name;
        let expected = artifact::repository(name);
        if plugin.repository != expected {
            let (by, rule) = (RefusedBy::Verification, "malformed_name".into());
            let detail = format!(
                "the manifest pulls the plugin {name} from the repository {}, not from {expected}",
                plugin.repository
            );
            return Err(Refusal { by, rule, detail });
        }
        let Ok(key) = parse(&plugin.publisher) else {
            let (by, rule) = (RefusedBy::Verification, "malformed_name".into());
            let detail = format!("the publisher of the plugin {name} is not a public key");
            return Err(Refusal { by, rule, detail });
        };
        let is_release = release == Some(key.as_str());
        // The denial takes precedence: the enrol command of a vendor may record the same key.
        if is_release && self.deny_release_publisher {
            let rule = "deny_release_publisher";
            let detail = format!(
                "the publisher of the plugin {name} is Stead's release key, which the policy denies; to trust it, remove \
                 {rule} from the policy"
            );
            return Err(Refusal::policy(rule, detail));
        }
        if is_release || recorded.contains(&key) || self.plugin_publishers.contains(&key) {
            return Ok(());
        }
        let line = names::line("plugin_publishers", &self.plugin_publishers, [&key]);
        let detail = format!(
            "the publisher of the plugin {name} is not trusted; to trust it, confirm its key {key} with the vendor, and \
             restart the runner with --plugin-publisher {key}, or add this line to the policy, above its tables: \
             {line}"
        );
        Err(Refusal::policy("plugin_publishers", detail))
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::SigningKey;
    use serde_json::json;

    use super::*;

    fn key(seed: u8) -> String {
        hex::encode(SigningKey::from_bytes(&[seed; 32]).verifying_key().as_bytes())
    }

    fn manifest(repository: &str, publisher: &str) -> Manifest {
        serde_json::from_value(json!({
            "version": 1, "job": "job_01ARZ3NDEKTSV4RRFFQ69G5FAV", "kind": "plan", "class": "pure",
            "plugin": {"name": "vault", "version": "1.0", "artifact": {
                "repository": repository, "digest": format!("sha256:{:064}", 0), "size": 1,
                "publisher": publisher,
            }},
            "inputs": {}, "limits": {"output_bytes": 1},
            "timeouts": {"deadline_ms": 1, "grace_ms": 1},
        }))
        .unwrap()
    }

    #[test]
    fn only_trusted_publishers_are_allowed() {
        let job = manifest("stead.plugins/vault", &key(1));
        let none = Policy::without_rules();
        let refusal = none.allows_publisher(&job, &[key(2)]).unwrap_err();
        assert_eq!(refusal.rule, "plugin_publishers");
        let line = format!("plugin_publishers = [\"{}\"]", key(1));
        assert!(refusal.detail.ends_with(&line), "{refusal}");
        assert!(none.allows_publisher(&job, &[key(2), key(1)]).is_ok());
        let policy = Policy { plugin_publishers: vec![key(1)], ..Policy::without_rules() };
        assert!(policy.allows_publisher(&job, &[]).is_ok());
        // The line contains the existing keys of the policy, and allows the job.
        let policy = Policy { plugin_publishers: vec![key(3)], ..Policy::without_rules() };
        let refusal = policy.allows_publisher(&job, &[]).unwrap_err();
        let line = format!("plugin_publishers = [\"{}\", \"{}\"]", key(3), key(1));
        assert!(refusal.detail.ends_with(&line), "{refusal}");
        let option = format!("--plugin-publisher {}", key(1));
        assert!(refusal.detail.contains(&option), "{refusal}");
    }

    #[test]
    fn the_key_of_a_release_is_trusted_unless_the_policy_denies_it() {
        let (job, release) = (manifest("stead.plugins/vault", &key(1)), key(1));
        let none = Policy::without_rules();
        assert!(none.allows_publisher_or(&job, &[], Some(&release)).is_ok());
        assert!(none.allows_publisher_or(&job, &[], Some(&key(2))).is_err());
        assert!(none.allows_publisher_or(&job, &[], None).is_err());
        let denying = Policy { deny_release_publisher: true, ..Policy::without_rules() };
        let recorded = [key(1), key(2)];
        let refusal = denying.allows_publisher_or(&job, &recorded, Some(&release)).unwrap_err();
        assert_eq!(refusal.rule, "deny_release_publisher");
        let other = manifest("stead.plugins/vault", &key(2));
        assert!(denying.allows_publisher_or(&other, &recorded, Some(&release)).is_ok());
    }

    #[test]
    fn only_a_canonical_key_is_compiled_into_a_release() {
        assert!(is_absent_or_canonical(None));
        assert!(is_absent_or_canonical(Some(&key(1))));
        for malformed in ["", "key", &"A".repeat(64), &"0".repeat(63), &"g".repeat(64)] {
            assert!(!is_absent_or_canonical(Some(malformed)), "{malformed}");
        }
    }

    #[test]
    fn a_plugin_of_another_repository_or_without_a_key_is_refused() {
        let policy = Policy { plugin_publishers: vec![key(1)], ..Policy::without_rules() };
        for job in [
            manifest("stead.plugins/other", &key(1)),
            manifest("shop/vault", &key(1)),
            manifest("stead.plugins/vault", "key"),
        ] {
            let refusal = policy.allows_publisher(&job, &[]).unwrap_err();
            assert_eq!((refusal.by, &*refusal.rule), (RefusedBy::Verification, "malformed_name"));
        }
    }

    #[test]
    fn recorded_keys_are_added_once() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        assert_eq!(recorded(&data).unwrap(), Vec::<String>::new());
        assert!(record(&data, &[key(1)]).unwrap());
        assert!(!record(&data, &[key(1)]).unwrap());
        assert!(record(&data, &[key(2), key(2)]).unwrap());
        assert_eq!(recorded(&data).unwrap(), [key(1), key(2)]);
        let entries = Journal::open(&data).unwrap().read().unwrap();
        let trusted = entries.into_iter().filter_map(|entry| {
            let JournalEvent::PublishersTrusted { publishers } = entry.event else { return None };
            Some(publishers)
        });
        assert_eq!(trusted.collect::<Vec<_>>(), [vec![key(1)], vec![key(1), key(2)]]);
        assert!(!remove(&data, &key(3)).unwrap());
        assert!(remove(&data, &key(2)).unwrap());
        assert_eq!(recorded(&data).unwrap(), [key(1)]);
        assert_eq!(parse(&key(1).to_uppercase()), Ok(key(1)));
        assert!(parse("sha256:00").is_err());
        let file = dir.path().join(FILE);
        std::fs::write(&file, json!([key(1).to_uppercase()]).to_string()).unwrap();
        assert_eq!(recorded(&data).unwrap(), [key(1)]);
        std::fs::write(&file, json!(["key"]).to_string()).unwrap();
        let malformed = recorded(&data).unwrap_err();
        assert!(malformed.to_string().contains("is not the public key"), "{malformed}");
    }
}
