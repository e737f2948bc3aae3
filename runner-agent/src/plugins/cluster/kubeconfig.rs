//! Kubeconfig from an output of a component. Only its current context is used, and the job gets a
//! file with exactly the keys that were checked.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

/// Largest kubeconfig in bytes.
const SIZE_LIMIT: usize = 256 << 10;

/// Feature of a kubeconfig that a customer can allow in the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    /// A program that prints the credentials.
    Exec,
    /// A plugin of the client for a cloud.
    AuthProvider,
    /// Files of this host.
    Paths,
}

impl Feature {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Feature::Exec => "exec",
            Feature::AuthProvider => "auth-provider",
            Feature::Paths => "paths",
        }
    }
}

/// Features of a kubeconfig that the customer allows.
pub type Allowed = BTreeSet<Feature>;

/// Keys of a user with a credential.
const CREDENTIALS: [&str; 4] = ["token", "password", "client-key-data", "client-certificate-data"];
/// Keys of a user with the path of a file.
const USER_PATHS: [&str; 3] = ["tokenFile", "client-certificate", "client-key"];
const CLUSTER_PATHS: [&str; 1] = ["certificate-authority"];
/// Other keys of a user and a cluster that a job may use.
const USER_KEYS: [&str; 5] = ["username", "as", "as-uid", "as-groups", "as-user-extra"];
const CLUSTER_KEYS: [&str; 6] = [
    "server",
    "certificate-authority-data",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "proxy-url",
    "disable-compression",
];

#[derive(Deserialize)]
struct File {
    #[serde(default, rename = "current-context")]
    current_context: String,
    #[serde(default)]
    clusters: Vec<Cluster>,
    #[serde(default)]
    contexts: Vec<Context>,
    #[serde(default)]
    users: Vec<User>,
}

#[derive(Deserialize)]
struct Cluster {
    name: String,
    cluster: Map<String, Value>,
}

#[derive(Deserialize)]
struct Context {
    name: String,
    context: ContextSettings,
}

#[derive(Deserialize)]
struct ContextSettings {
    cluster: String,
    #[serde(default)]
    user: String,
    #[serde(default)]
    namespace: Option<String>,
}

#[derive(Deserialize)]
struct User {
    name: String,
    #[serde(default)]
    user: Map<String, Value>,
}

/// Current context of a kubeconfig, with its cluster and its user.
#[derive(Debug, PartialEq)]
pub(super) struct Kubeconfig {
    cluster: Map<String, Value>,
    user: Map<String, Value>,
    namespace: Option<String>,
}

/// Parses a kubeconfig. An error names the key and no value.
pub(super) fn parse(text: &str) -> Result<Kubeconfig, String> {
    if text.len() > SIZE_LIMIT {
        return Err(format!("it is larger than {SIZE_LIMIT} bytes"));
    }
    // The message of the parser could show a part of the text.
    let file: File = serde_saphyr::from_str(text)
        .map_err(|_| "it is not YAML with clusters, contexts and users".to_owned())?;
    let File { current_context: current, clusters, contexts, users } = file;
    let only = contexts.len() == 1 && current.is_empty();
    let context = contexts.into_iter().find(|one| only || one.name == current);
    let context = context.ok_or("its current-context is not among its contexts")?.context;
    let cluster = clusters.into_iter().find(|one| one.name == context.cluster);
    let cluster = cluster.ok_or("the cluster of its current context is missing")?.cluster;
    let user = users.into_iter().find(|one| one.name == context.user);
    let user = user.ok_or("the user of its current context is missing")?.user;
    if !cluster.get("server").is_some_and(Value::is_string) {
        return Err("its cluster has no server".into());
    }
    Ok(Kubeconfig { cluster, user, namespace: context.namespace })
}

impl Kubeconfig {
    /// Builds the kubeconfig of a cluster whose token is in a file beside the kubeconfig.
    pub(super) fn with_token_file(server: &str, authority: &str, token_file: &str) -> Self {
        let object = |value: Value| value.as_object().cloned().unwrap_or_default();
        let cluster = object(json!({ "server": server, "certificate-authority-data": authority }));
        Kubeconfig { cluster, user: object(json!({ "tokenFile": token_file })), namespace: None }
    }

    /// Returns the address to which a client connects: that of the proxy or of the API server.
    pub(super) fn address(&self) -> Option<&str> {
        let text = |key| self.cluster.get(key).and_then(Value::as_str);
        text("proxy-url").filter(|url| !url.is_empty()).or_else(|| text("server"))
    }

    /// Refuses what the customer does not allow, and every key that this runner does not know.
    pub(super) fn check(&self, allowed: &Allowed) -> Result<(), String> {
        for key in self.user.keys() {
            let feature = match key.as_str() {
                "exec" => Feature::Exec,
                "auth-provider" => Feature::AuthProvider,
                path if USER_PATHS.contains(&path) => Feature::Paths,
                known if CREDENTIALS.contains(&known) || USER_KEYS.contains(&known) => continue,
                "extensions" => continue,
                unknown => return Err(format!("its user has the unknown key {unknown:?}")),
            };
            require(allowed, feature, "user", key)?;
        }
        for key in self.cluster.keys() {
            match key.as_str() {
                path if CLUSTER_PATHS.contains(&path) => {
                    require(allowed, Feature::Paths, "cluster", key)?;
                }
                known if CLUSTER_KEYS.contains(&known) => {}
                "extensions" => {}
                unknown => return Err(format!("its cluster has the unknown key {unknown:?}")),
            }
        }
        Ok(())
    }

    /// Returns every credential, for redaction.
    pub(super) fn secrets(&self) -> Vec<Zeroizing<String>> {
        let mut secrets = Vec::new();
        for (key, value) in &self.user {
            if CREDENTIALS.contains(&key.as_str())
                && let Some(text) = value.as_str()
            {
                // A tool may print the key itself instead of its encoding.
                let decoded = STANDARD.decode(text.trim()).ok();
                let decoded = decoded.filter(|_| key.ends_with("-data"));
                let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
                secrets.extend(decoded.map(Zeroizing::new));
                secrets.push(Zeroizing::new(text.to_owned()));
            }
        }
        let variables = self.user.get("exec").and_then(|exec| exec["env"].as_array());
        let values = variables.into_iter().flatten().filter_map(|one| one["value"].as_str());
        secrets.extend(values.map(|value| Zeroizing::new(value.to_owned())));
        secrets
    }

    /// Returns the file for the job, as JSON, which is YAML.
    pub(super) fn text(&self) -> Zeroizing<String> {
        let mut context = json!({ "cluster": "install", "user": "runner" });
        if let Some(namespace) = &self.namespace {
            context["namespace"] = json!(namespace);
        }
        let file = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "install",
            "clusters": [{ "name": "install", "cluster": self.cluster }],
            "contexts": [{ "name": "install", "context": context }],
            "users": [{ "name": "runner", "user": self.user }],
        });
        Zeroizing::new(file.to_string())
    }
}

fn require(allowed: &Allowed, feature: Feature, part: &str, key: &str) -> Result<(), String> {
    if allowed.contains(&feature) {
        return Ok(());
    }
    let what = match feature {
        Feature::Exec => "which runs a program",
        Feature::AuthProvider => "which selects code of the client",
        Feature::Paths => "a path on this host",
    };
    Err(format!(
        "its {part} has `{key}`, {what}; use a token or a client certificate in the kubeconfig, or allow it in the \
         policy of the runner: kubeconfig_allows = [\"{}\"]",
        feature.as_str()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(user: &str, cluster: &str) -> Kubeconfig {
        parse(&format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: k, cluster: {{server: https://127.0.0.1:1{cluster}}}}}]\n\
             contexts: [{{name: other, context: {{cluster: k, user: o}}}}, {{name: c, context: {{cluster: k, user: u}}}}]\n\
             users: [{{name: o, user: {{token: other}}}}, {{name: u, user: {user}}}]\n"
        ))
        .unwrap()
    }

    #[test]
    fn only_contained_credentials_are_accepted_without_a_policy() {
        let refusal = |user, cluster| kubeconfig(user, cluster).check(&Allowed::new()).err();
        assert_eq!(refusal("{token: t}", ""), None);
        assert_eq!(refusal("{client-certificate-data: YQ==, client-key-data: YQ==}", ""), None);
        for (user, cluster, named, key) in [
            ("{exec: {command: aws}}", "", "`exec`", "exec"),
            ("{auth-provider: {name: gcp}}", "", "`auth-provider`", "auth-provider"),
            ("{tokenFile: /var/token}", "", "`tokenFile`", "paths"),
            ("{client-certificate: /a, client-key: /b}", "", "`client-certificate`", "paths"),
            ("{token: t}", ", certificate-authority: /ca", "`certificate-authority`", "paths"),
        ] {
            let why = refusal(user, cluster).unwrap_or_default();
            assert!(why.contains(named), "{user}: {why}");
            assert!(why.contains(&format!("kubeconfig_allows = [\"{key}\"]")), "{why}");
        }
    }

    #[test]
    fn the_policy_allows_single_features() {
        let exec = kubeconfig("{exec: {command: aws}}", "");
        assert_eq!(exec.check(&[Feature::Exec].into()), Ok(()));
        assert!(exec.check(&[Feature::Paths, Feature::AuthProvider].into()).is_err());
        let path = kubeconfig("{token: t}", ", certificate-authority: /ca");
        assert_eq!(path.check(&[Feature::Paths].into()), Ok(()));
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let all: Allowed = [Feature::Exec, Feature::AuthProvider, Feature::Paths].into();
        let user = kubeconfig("{token: t, Exec: {command: aws}}", "").check(&all);
        assert!(user.unwrap_err().contains("unknown key \"Exec\""));
        let cluster = kubeconfig("{token: t}", ", odd: 1").check(&all);
        assert!(cluster.unwrap_err().contains("unknown key \"odd\""));
    }

    #[test]
    fn the_job_gets_only_the_current_context() {
        let file = kubeconfig("{token: mine}", "").text();
        assert!(file.contains("mine") && !file.contains("other"), "{}", *file);
        let again = parse(&file).unwrap();
        assert_eq!(again, kubeconfig("{token: mine}", ""));
    }

    #[test]
    fn credentials_are_redacted_in_both_forms() {
        let key = STANDARD.encode("-----BEGIN KEY-----");
        let user = format!("{{client-key-data: {key}, password: pass-word, username: admin}}");
        let secrets = kubeconfig(&user, "").secrets();
        let secrets: BTreeSet<&str> = secrets.iter().map(|secret| secret.as_str()).collect();
        assert_eq!(secrets, [key.as_str(), "-----BEGIN KEY-----", "pass-word"].into());
    }

    #[test]
    fn errors_show_no_part_of_the_text() {
        for text in [
            "hunter22",
            "{",
            "clusters: [{name: hunter22}]",
            "contexts: [{name: hunter22, context: {cluster: hunter22}}]",
            "current-context: hunter22",
        ] {
            let why = parse(text).unwrap_err();
            assert!(!why.contains("hunter22"), "{why}");
        }
        assert!(parse(&" ".repeat(SIZE_LIMIT + 1)).is_err());
    }
}
