//! Names that the policy compares. A malformed name is refused: it could mean one thing to the
//! policy and another to a URL, a path or a screen.
use schemas::{
    manifest::Manifest,
    runner::{JobKind, RefusedBy},
    sanitize::sanitize,
};
use serde_json::{Value, json};

use super::Refusal;

/// Longest name, in bytes.
const LONGEST: usize = 255;

/// Refuses a manifest with a malformed name.
pub(super) fn check(manifest: &Manifest) -> Result<(), Refusal> {
    let require = |is_valid: bool, what: &str, name: &str| match is_valid {
        true => Ok(()),
        false => {
            let detail = format!("{:?} is not a valid name of {what}", sanitize(name));
            let rule = "malformed_name".into();
            Err(Refusal { by: RefusedBy::Verification, rule, detail })
        }
    };
    let plugin = &manifest.plugin.name;
    require(is_segment(plugin), "a plugin", plugin)?;
    if let Some(action) = action(manifest) {
        require(is_printable(action), "an action", action)?;
    }
    for artifact in &manifest.artifacts {
        let name = &artifact.repository;
        require(is_repository(name), "a repository", name)?;
    }
    match &manifest.role {
        Some(role) => require(is_role(role), "a role", role),
        None => Ok(()),
    }
}

/// Returns the name of the action that the manifest runs, empty if the name is missing. Returns
/// `None` for other kinds of jobs.
pub(super) fn action(manifest: &Manifest) -> Option<&str> {
    let action = (manifest.kind == JobKind::Action).then(|| manifest.inputs.get("action"))?;
    Some(action.and_then(Value::as_str).unwrap_or_default())
}

/// Returns true if each segment is valid. Unlike in OCI's grammar, a segment may have upper-case
/// letters and begin with an underscore, as names of components can.
fn is_repository(name: &str) -> bool {
    name.len() <= LONGEST && name.split('/').all(is_segment)
}

fn is_segment(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let inner = |byte: u8| plain(byte) || matches!(byte, b'-' | b'.');
    let starts = name.bytes().next().is_some_and(plain);
    starts && name.len() <= LONGEST && name.bytes().all(inner) && !name.contains("..")
}

fn is_role(name: &str) -> bool {
    let up = |part: &str| matches!(part, "." | "..");
    let graphic = name.bytes().all(|byte| byte.is_ascii_graphic());
    (1..=2048).contains(&name.len()) && graphic && !name.split('/').any(up)
}

/// Returns true if a terminal shows the name unchanged.
fn is_printable(name: &str) -> bool {
    let short = (1..=LONGEST).contains(&name.len());
    short && name.trim() == name && !name.contains('\t') && sanitize(name) == name
}

/// Refuses a name that matches no pattern of a list.
pub(super) fn listed(rule: &str, allowed: &Option<Vec<String>>, name: &str) -> Result<(), Refusal> {
    match allowed {
        Some(allowed) if !allowed.iter().any(|pattern| matches_pattern(pattern, name)) => {
            Err(Refusal::policy(rule, format!("{name:?} is not among the allowed {rule}")))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the line of the policy that allows these names in addition to the listed ones.
pub(super) fn line<'n>(
    rule: &str,
    allowed: &'n [String],
    names: impl IntoIterator<Item = &'n String>,
) -> String {
    let quoted = |name: &String| json!(name).to_string();
    let all: Vec<String> = allowed.iter().chain(names).map(quoted).collect();
    format!("{rule} = [{}]", all.join(", "))
}

/// Separator between the name and the digest of an action.
const DIGEST: &str = "@sha256:";

/// Refuses an action that matches no pattern. A pattern is a name, or a name with the digest of the
/// action.
pub(super) fn listed_action(
    allowed: &Option<Vec<String>>,
    action: &str,
    manifest: &Manifest,
) -> Result<(), Refusal> {
    let Some(allowed) = allowed else { return Ok(()) };
    let (digests, names): (Vec<_>, Vec<_>) =
        allowed.iter().cloned().partition(|pattern| pattern.contains(DIGEST));
    let exact = action_with_digest(manifest);
    if exact.is_some_and(|exact| digests.contains(&exact)) {
        return Ok(());
    }
    listed("actions", &Some(names), action)
}

/// Returns name and digest of the action that a manifest runs. The digest covers the plugin, all
/// inputs, the references to sensitive values and the artifacts. The inputs include the trigger, every step with its script and
/// variables, and the settings of an external plugin. The variables of the job are left out,
/// because their values differ between installs.
pub fn action_with_digest(manifest: &Manifest) -> Option<String> {
    let name = action(manifest)?;
    let digests: Vec<_> = manifest.artifacts.iter().map(|artifact| &artifact.digest).collect();
    let mut covered = json!({
        "plugin": manifest.plugin, "inputs": manifest.inputs, "artifacts": digests,
    });
    // Functions of a reference can contain text, for example of a script.
    if !manifest.secrets.is_empty() {
        covered["secrets"] = json!(manifest.secrets);
    }
    let bytes = proof::canonical::json(&covered).ok()?;
    Some(format!("{name}@{}", proof::digest_text(&proof::sha256(&bytes))))
}

fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

/// Returns the first invalid pattern: an empty one, or one with a `*` before the end.
pub(super) fn malformed<'p>(patterns: impl IntoIterator<Item = &'p String>) -> Option<&'p String> {
    patterns.into_iter().find(|pattern| {
        let start = pattern.strip_suffix('*').unwrap_or(pattern);
        pattern.is_empty() || start.contains('*')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_are_valid_url_paths() {
        for name in ["acme/web", "acme/web_2", "a-b/c.d/e", "edge-api/Network"] {
            assert!(is_repository(name), "{name}");
        }
        let long = "a/".repeat(200) + "a";
        for name in [
            "acme/../evil/x",
            "../x",
            "acme/./x",
            "acme//x",
            "/acme",
            "acme/",
            "acme/%2e%2e/x",
            "acme\\x",
            "acme/x:1",
            "acme/x@sha256",
            "acme/x?y",
            "acme/x#y",
            "acme/ x",
            "acme/é",
            "",
            &long,
        ] {
            assert!(!is_repository(name), "{name}");
        }
    }

    #[test]
    fn the_digest_of_an_action_covers_every_input() {
        let with = |inputs: Value| -> Manifest {
            serde_json::from_value(json!({
                "version": 1, "job": "job_01ARZ3NDEKTSV4RRFFQ69G5FAV", "kind": "action", "class": "unsafe",
                "plugin": {"name": "database", "version": "1", "digest": format!("sha256:{:064}", 0)},
                "inputs": inputs, "env": {"REGION": "eu-central-1"},
                "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 1, "grace_ms": 1},
            }))
            .unwrap()
        };
        let inputs_json = json!({
            "action": "backup", "trigger": "manual", "steps": [], "settings": {"target": "s3://ours"},
        });
        let approved = with(inputs_json.clone());
        let pinned = action_with_digest(&approved).unwrap();
        let allowed = Some(vec![pinned.clone()]);
        assert!(listed_action(&allowed, "backup", &approved).is_ok());
        for (name, value) in [
            ("settings", json!({"target": "s3://another"})),
            ("trigger", json!("post-deploy-all-components")),
            ("steps", json!([{"name": "one", "command": "true"}])),
            ("more", json!(null)),
        ] {
            let mut inputs = inputs_json.clone();
            inputs[name] = value;
            let other = with(inputs);
            assert_ne!(action_with_digest(&other).unwrap(), pinned, "{name}");
            assert_eq!(listed_action(&allowed, "backup", &other).unwrap_err().rule, "actions");
        }
    }

    #[test]
    fn a_role_names_no_other_path() {
        assert!(is_role("arn:aws:iam::123456789012:role/stead-web"));
        assert!(is_role("/subscriptions/1/roleDefinitions/2"));
        for name in ["arn:aws:iam::1:role/stead-/../admin", "a b", "", "r\u{202e}x", "r\n"] {
            assert!(!is_role(name), "{name}");
        }
    }
}
