//! Kubeconfig of the job. It must contain its credentials, or name a token file beside it: the
//! plugin runs no program and reads no other file that a kubeconfig names, unless the customer's
//! policy allows it.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::failure::{Failure, Outcome};

/// Variable of the runner with the features that the customer allows in a kubeconfig.
const ALLOWS: &str = "STEAD_KUBECONFIG_ALLOWS";

/// Loads the files that `KUBECONFIG` names.
pub fn load() -> Outcome<Kubeconfig> {
    let config = Kubeconfig::from_env().map_err(unreadable)?;
    let config = config.ok_or_else(|| {
        Failure::refused(
            "no access to a cluster: KUBECONFIG is not set; add an output `kubeconfig` or `cluster` \
             to the sandbox, or start the runner with KUBECONFIG in its environment and --pass-env \
             KUBECONFIG",
        )
    })?;
    let allowed = std::env::var(ALLOWS).unwrap_or_default();
    let file = std::env::var_os("KUBECONFIG").map(PathBuf::from);
    check(&config, &allowed, file.as_deref().and_then(Path::parent))?;
    Ok(config)
}

/// Refuses a kubeconfig that runs programs or refers to files of the host. `beside` is the
/// directory of the kubeconfig.
fn check(config: &Kubeconfig, allowed: &str, beside: Option<&Path>) -> Outcome<()> {
    let allows = |feature: &str| allowed.split(',').any(|one| one == feature);
    let is_beside = |path: &String| beside.is_some() && Path::new(path).parent() == beside;
    let refuse = |what: String, remedy: &str| {
        Err(Failure::refused(format!("refused the kubeconfig: {what}; {remedy}")))
    };
    for user in &config.auth_infos {
        let Some(auth) = &user.auth_info else { continue };
        let name = &user.name;
        if auth.exec.is_some() && !allows("exec") {
            let remedy = "use a token or a client certificate";
            return refuse(format!("the user {name} has `exec`, which runs a program"), remedy);
        }
        if auth.auth_provider.is_some() && !allows("auth-provider") {
            let remedy = "use a token or a client certificate";
            return refuse(format!("the user {name} has an `auth-provider`"), remedy);
        }
        let paths = [
            ("tokenFile", auth.token_file.as_ref().filter(|path| !is_beside(path))),
            ("client-certificate", auth.client_certificate.as_ref()),
            ("client-key", auth.client_key.as_ref()),
        ];
        let path = paths.iter().find(|(_, path)| path.is_some());
        if let Some((key, _)) = path.filter(|_| !allows("paths")) {
            return refuse(
                format!("the user {name} has `{key}`, a path on the host"),
                "put the content into the kubeconfig (kubectl config view --flatten --raw)",
            );
        }
    }
    for cluster in &config.clusters {
        let path = cluster.cluster.as_ref().and_then(|of| of.certificate_authority.as_ref());
        if path.is_some() && !allows("paths") {
            return refuse(
                format!(
                    "the cluster {} has `certificate-authority`, a path on the host",
                    cluster.name
                ),
                "put the content into the kubeconfig (kubectl config view --flatten --raw)",
            );
        }
    }
    Ok(())
}

/// Builds the connection settings of the current context.
pub async fn connection(config: Kubeconfig) -> Outcome<kube::Config> {
    let has_proxy = config
        .clusters
        .iter()
        .filter_map(|one| one.cluster.as_ref())
        .any(|cluster| cluster.proxy_url.as_ref().is_some_and(|proxy| !proxy.is_empty()));
    if has_proxy {
        return Err(Failure::refused(
            "refused the kubeconfig: a cluster has `proxy-url`, which is not supported; use an \
             endpoint that the runner's host reaches directly",
        ));
    }
    let options = KubeConfigOptions::default();
    let mut config =
        kube::Config::from_custom_kubeconfig(config, &options).await.map_err(unreadable)?;
    // The plugin reaches the API server directly. HTTPS_PROXY is for other programs of the runner.
    config.proxy_url = None;
    Ok(config)
}

/// Returns the failure of an invalid kubeconfig. The parser's text quotes neighboring lines, which
/// can contain credentials, so the message has only the position.
fn unreadable(error: KubeconfigError) -> Failure {
    let why = if let KubeconfigError::Parse(error) = &error {
        match error.location() {
            Some(at) => format!("invalid YAML at line {}, column {}", at.line(), at.column()),
            None => "invalid YAML".to_owned(),
        }
    } else if matches!(error, KubeconfigError::ParseProxyUrl(_)) {
        "invalid proxy URL".to_owned()
    } else {
        error.to_string()
    };
    Failure::refused(format!("cannot read the kubeconfig: {why}; correct the file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(user: &str, cluster: &str, allowed: &str) -> Option<String> {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: https://127.0.0.1:1{cluster}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {user}}}]\n"
        );
        let config = Kubeconfig::from_yaml(&text).unwrap();
        check(&config, allowed, Some(Path::new("/job/cluster")))
            .err()
            .map(|failure| failure.message)
    }

    #[test]
    fn syntax_error_beside_a_credential_does_not_quote_it() {
        let text = "apiVersion: v1\nusers:\n- name: u\n  user:\n    token: t-secret\n   password: \
                    hunter2-admin\n  name: x\n";
        let message = unreadable(Kubeconfig::from_yaml(text).unwrap_err()).message;
        assert!(!message.contains("t-secret") && !message.contains("hunter2"), "{message}");
        assert!(message.contains("at line "), "{message}");
    }

    #[tokio::test]
    async fn proxy_of_a_kubeconfig_is_refused_without_its_password() {
        let text = |proxy: &str| {
            format!(
                "current-context: c\nclusters: [{{name: c, cluster: {{server: 'https://a:1'{proxy}}}}}]\n\
                 contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
                 users: [{{name: u, user: {{token: t}}}}]\n"
            )
        };
        let config = |proxy: &str| Kubeconfig::from_yaml(&text(proxy)).unwrap();
        let refused = connection(config(", proxy-url: 'http://u:hunter2@p'")).await.unwrap_err();
        assert!(refused.message.contains("`proxy-url`"), "{}", refused.message);
        assert!(!refused.message.contains("hunter2"), "{}", refused.message);
        assert!(connection(config("")).await.unwrap().proxy_url.is_none());
    }

    #[test]
    fn only_contained_credentials_are_accepted() {
        assert_eq!(refusal("{token: t}", "", ""), None);
        assert_eq!(refusal("{client-certificate-data: YQ==, client-key-data: YQ==}", "", ""), None);
        assert_eq!(refusal("{tokenFile: /job/cluster/token}", "", ""), None);
        for (user, cluster, named, feature) in [
            (
                "{exec: {command: aws, apiVersion: client.authentication.k8s.io/v1}}",
                "",
                "`exec`",
                "exec",
            ),
            ("{auth-provider: {name: gcp, config: {}}}", "", "`auth-provider`", "auth-provider"),
            ("{tokenFile: /var/token}", "", "`tokenFile`", "paths"),
            ("{client-certificate: /a, client-key: /b}", "", "`client-certificate`", "paths"),
            ("{token: t}", ", certificate-authority: /ca", "`certificate-authority`", "paths"),
        ] {
            let refused = refusal(user, cluster, "other").unwrap_or_default();
            assert!(refused.contains(named), "{user}: {refused}");
            assert_eq!(refusal(user, cluster, &format!("other,{feature}")), None, "{user}");
        }
    }
}
