//! Kubeconfig of the job. It must contain its credentials: the plugin runs no program and reads no
//! file that a kubeconfig names.

use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::failure::{Failure, Outcome};

/// Loads the files that `KUBECONFIG` names.
pub fn load() -> Outcome<Kubeconfig> {
    let config = Kubeconfig::from_env()
        .map_err(|e| Failure::refused(format!("cannot read the kubeconfig: {e}")))?;
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
    kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .map_err(|e| Failure::refused(format!("cannot use the kubeconfig: {e}")))
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
