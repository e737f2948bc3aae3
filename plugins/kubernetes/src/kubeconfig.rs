//! Kubeconfig of the job. It must contain its credentials, or name a token file beside it: the
//! plugin runs no program and reads no other file that a kubeconfig names, unless the customer's
//! policy allows it.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::failure::{Failure, Outcome};

/// Variable of the runner with the features that the customer allows in a kubeconfig.
const ALLOWS: &str = "STEAD_KUBECONFIG_ALLOWS";

/// Loads the files that `KUBECONFIG` names.
pub fn load() -> Outcome<Kubeconfig> {
    let config = Kubeconfig::from_env()
        .map_err(|e| Failure::refused(format!("cannot read the kubeconfig: {e}")))?;
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
    kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .map_err(|e| Failure::refused(format!("cannot use the kubeconfig: {e}")))
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
