//! Checks before the first change of a run.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use schemas::plugin::{CallContext, CheckStatus, Operation, Preflight, PreflightCheck};

use crate::{
    cluster::{CONCURRENCY, Cluster},
    failure::{Failure, Outcome, listed},
    inventory::Inventory,
    kinds::{self, Kind, Kinds},
    kustomize,
    manifest::{self, Desired},
    settings::Component,
};

/// Verbs that the component needs for its objects.
const VERBS: [&str; 4] = ["get", "create", "patch", "delete"];

/// Checks the access to the cluster, the rights to the inventory and to the kinds of the manifest,
/// and the tools.
pub async fn checks(context: &CallContext) -> Preflight {
    let component: Component = match Component::read(context) {
        Ok(component) => component,
        Err(failure) => return Preflight { checks: vec![check("settings", Err(failure))] },
    };
    let mut checks = vec![];
    if let Some(kustomize) = &component.settings.kustomize
        && component.operation == Operation::Apply
    {
        let result = match kustomize::shipped::read(&component.source_dir, kustomize) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => kustomize::find_tool(),
            Err(failure) => Err(failure),
        };
        checks.push(check("kustomize", result));
    }
    let cluster = match Cluster::connect(&component).await {
        Ok(cluster) => cluster,
        Err(failure) => {
            checks.push(check("cluster", Err(failure)));
            return Preflight { checks };
        }
    };
    let inventory =
        async { Inventory::load(&cluster, &component).await?.check_write(&cluster).await };
    let (identity, inventory, objects) =
        tokio::join!(cluster.identity(), inventory, check_objects(&cluster, &component));
    let is_connected = identity.is_ok();
    checks.push(check("cluster", identity.map(drop)));
    // Without the cluster, the other checks fail for the same reason.
    if is_connected {
        checks.push(check("inventory", inventory));
        checks.extend(objects);
    }
    Preflight { checks }
}

/// Checks the kinds of the manifest and the rights to them.
async fn check_objects(cluster: &Cluster, component: &Component) -> Vec<PreflightCheck> {
    let (Some(text), Operation::Apply) = (&component.settings.manifest, component.operation) else {
        return vec![];
    };
    match desired(cluster, component, text).await {
        Ok((desired, kinds)) => {
            let permissions = permissions(cluster, component, &desired, &kinds).await;
            vec![served(&desired, &kinds), check("permissions", permissions)]
        }
        Err(failure) => vec![check("kinds", Err(failure))],
    }
}

/// Returns the objects of the manifest, and the kinds that the cluster serves of their versions.
async fn desired(
    cluster: &Cluster,
    component: &Component,
    text: &str,
) -> Outcome<(Vec<Desired>, Kinds)> {
    let desired = manifest::parse(text, manifest::file_name(&component.settings))?;
    let versions = desired.iter().map(|one| one.reference.api_version.as_str());
    let kinds = Kinds::load(cluster, versions).await?;
    Ok((desired, kinds))
}

/// Checks that the cluster serves the kinds of the objects. Another component may define the kinds
/// of a group with a domain, such as `example.dev`, before this one is deployed.
fn served(desired: &[Desired], kinds: &Kinds) -> PreflightCheck {
    let definitions = || desired.iter().filter(|one| one.reference.is_crd());
    let is_known = |one: &&Desired| {
        kinds.get(&one.reference).is_some()
            || definitions().any(|crd| kinds::defined_by(&crd.object, &one.reference).is_some())
    };
    let unknown: Vec<&Desired> = desired.iter().filter(|one| !is_known(one)).collect();
    let is_fixed = |one: &&&Desired| !one.reference.group().contains('.');
    let fixed: Vec<&Desired> = unknown.iter().filter(is_fixed).copied().collect();
    let (status, named) = match (unknown.is_empty(), fixed.is_empty()) {
        (true, _) => (CheckStatus::Ok, vec![]),
        (false, true) => (CheckStatus::Deferred, unknown),
        (false, false) => (CheckStatus::Failed, fixed),
    };
    let lines: Vec<String> = named.into_iter().map(kinds::unknown).collect();
    let message = match lines.is_empty() {
        true => String::new(),
        false => listed("unknown kinds", &lines),
    };
    PreflightCheck { check: "kinds".to_owned(), status, message }
}

fn check(name: &str, result: Outcome<()>) -> PreflightCheck {
    let (status, message) = match result {
        Ok(()) => (CheckStatus::Ok, String::new()),
        Err(failure) => (CheckStatus::Failed, failure.message),
    };
    PreflightCheck { check: name.to_owned(), status, message }
}

/// Checks the permissions for all kinds of a manifest that the cluster serves.
async fn permissions(
    cluster: &Cluster,
    component: &Component,
    desired: &[Desired],
    kinds: &Kinds,
) -> Outcome<()> {
    let default = component.settings.namespace.as_deref();
    let needed: BTreeSet<(&Kind, Option<&str>)> = desired
        .iter()
        .filter_map(|one| {
            let kind = kinds.get(&one.reference)?;
            let namespace = one.reference.namespace.as_deref().or(default);
            Some((kind, namespace.filter(|_| kind.is_namespaced)))
        })
        .collect();
    let denied: Vec<Outcome<Option<String>>> = stream::iter(needed)
        .flat_map(|(kind, namespace)| stream::iter(VERBS.map(|verb| (verb, kind, namespace))))
        .map(|(verb, kind, namespace)| async move {
            let allowed = cluster.is_allowed(verb, kind, namespace).await?;
            let scope = namespace.map_or_else(String::new, |name| format!(" in {name}"));
            Ok((!allowed).then(|| format!("{verb} {}{scope}", kind.plural())))
        })
        .buffered(CONCURRENCY)
        .collect()
        .await;
    let denied = denied.into_iter().collect::<Outcome<Vec<_>>>()?;
    let denied: Vec<String> = denied.into_iter().flatten().collect();
    match denied.is_empty() {
        true => Ok(()),
        false => Err(Failure::failed(listed(
            "the kubeconfig's user is not allowed to do this; add it to the RBAC rules",
            &denied,
        ))),
    }
}
