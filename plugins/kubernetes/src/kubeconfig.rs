//! Kubeconfig of the job. It must contain its credentials: the plugin runs no program and reads no
//! file that a kubeconfig names.

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::failure::{Failure, Outcome};

/// Loads the files that `KUBECONFIG` names.
pub fn load() -> Outcome<Kubeconfig> {
    let config = Kubeconfig::from_env().map_err(unreadable)?;
    let config = config.ok_or_else(|| {
        Failure::refused(
            "no access to a cluster: KUBECONFIG is not set; start the runner with KUBECONFIG in \
             its environment and --pass-env KUBECONFIG",
        )
    })?;
    check(&config)?;
    Ok(config)
}

/// Refuses a kubeconfig that runs programs or refers to files of the host.
fn check(config: &Kubeconfig) -> Outcome<()> {
    let refuse = |what: String, remedy: &str| {
        Err(Failure::refused(format!("refused the kubeconfig: {what}; {remedy}")))
    };
    for user in &config.auth_infos {
        let Some(auth) = &user.auth_info else { continue };
        let name = &user.name;
        if auth.exec.is_some() {
            let remedy = "use a token or a client certificate";
            return refuse(format!("the user {name} has `exec`, which runs a program"), remedy);
        }
        if auth.auth_provider.is_some() {
            let remedy = "use a token or a client certificate";
            return refuse(format!("the user {name} has an `auth-provider`"), remedy);
        }
        let paths = [
            ("tokenFile", &auth.token_file),
            ("client-certificate", &auth.client_certificate),
            ("client-key", &auth.client_key),
        ];
        if let Some((key, _)) = paths.iter().find(|(_, path)| path.is_some()) {
            return refuse(
                format!("the user {name} has `{key}`, a path on the host"),
                "put the content into the kubeconfig (kubectl config view --flatten --raw)",
            );
        }
    }
    for cluster in &config.clusters {
        if cluster.cluster.as_ref().is_some_and(|of| of.certificate_authority.is_some()) {
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

    fn refusal(user: &str, cluster: &str) -> Option<String> {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: https://127.0.0.1:1{cluster}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {user}}}]\n"
        );
        check(&Kubeconfig::from_yaml(&text).unwrap()).err().map(|failure| failure.message)
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
        assert_eq!(refusal("{token: t}", ""), None);
        assert_eq!(refusal("{client-certificate-data: YQ==, client-key-data: YQ==}", ""), None);
        for (user, cluster, named) in [
            ("{exec: {command: aws, apiVersion: client.authentication.k8s.io/v1}}", "", "`exec`"),
            ("{auth-provider: {name: gcp, config: {}}}", "", "`auth-provider`"),
            ("{tokenFile: /var/token}", "", "`tokenFile`"),
            ("{client-certificate: /a, client-key: /b}", "", "`client-certificate`"),
            ("{token: t}", ", certificate-authority: /ca", "`certificate-authority`"),
        ] {
            let refused = refusal(user, cluster).unwrap_or_default();
            assert!(refused.contains(named), "{user}: {refused}");
        }
    }
}
