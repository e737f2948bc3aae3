//! Interpretation of an API server's errors for one object. Messages contain no values. No I/O.

use std::collections::BTreeSet;

use kube::core::Status;
use serde_json::Value;

use crate::{
    cluster::RequestError,
    failure::Failure,
    object::{ObjectRef, metadata},
};

/// Groups of the kinds that the API server itself implements, and whose immutable fields it knows.
const BUILT_IN: [&str; 17] = [
    "",
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "extensions",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Returns the failure of an apply, without values of the object.
pub fn apply_failure(reference: &ObjectRef, error: RequestError) -> Failure {
    let is_rejected = error.is_rejection();
    let operation = format!("apply {reference}");
    let Some(status) = error.status().filter(|status| status.code != 401 && !error.is_denied())
    else {
        return error.during(&operation);
    };
    let message = match invalid_text(reference, status) {
        Some(text) => format!("{reference} is invalid: {text}"),
        // Any text about a Secret can quote a value, even that of a webhook.
        None if reference.is_secret() => {
            let reason = if status.reason.is_empty() { "rejected" } else { &status.reason };
            format!(
                "cannot {operation}: {reason} ({}); check its type, keys and base64 values, and \
                 the webhooks of the cluster",
                status.code
            )
        }
        None => format!("cannot {operation}: {}", without_typed_value(status.message.trim())),
    };
    if is_rejected { Failure::refused(message) } else { Failure::failed(message) }
}

/// Returns the immutable fields that an apply would change. `None` if the server rejects the object
/// for another reason, such as a rule of a custom resource or of a policy.
pub fn immutable_fields(reference: &ObjectRef, status: &Status) -> Option<Vec<String>> {
    const TEXTS: [&str; 5] =
        ["is immutable", "are immutable", "may not change", "may not be changed", "cannot change"];
    let causes = status.details.as_ref().map(|details| details.causes.as_slice())?;
    let is_immutable = |message: &str| {
        TEXTS.iter().any(|text| message.contains(text))
            || message.contains("updates to") && message.contains("forbidden")
    };
    let is_complete = status.code == 422
        && BUILT_IN.contains(&reference.group())
        && !causes.is_empty()
        && causes.iter().all(|cause| !cause.field.is_empty() && is_immutable(&cause.message));
    let fields: BTreeSet<&String> = causes.iter().map(|cause| &cause.field).collect();
    is_complete.then(|| fields.into_iter().cloned().collect())
}

/// Returns fields and reasons of an invalid object. `None` if the response has no details.
fn invalid_text(reference: &ObjectRef, status: &Status) -> Option<String> {
    if status.code != 400 && status.code != 422 {
        return None;
    }
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let causes = causes.map(|cause| {
        let reason = match reference.is_secret() {
            true => cause.reason.clone(),
            false => without_value(&cause.message),
        };
        match cause.field.is_empty() {
            true => reason,
            false => format!("{}: {reason}", cause.field),
        }
    });
    let causes: Vec<String> = causes.collect();
    (!causes.is_empty()).then(|| causes.join("; "))
}

/// Removes the value from a message such as `Invalid value: "x": must be a number`.
pub fn without_value(message: &str) -> String {
    let Some((kind, rest)) = message.split_once(" value: ") else { return message.to_owned() };
    let reason = if let Some(quoted) = rest.strip_prefix('"') {
        let mut escaped = false;
        let end = quoted.char_indices().find(|(_, c)| {
            let is_end = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            is_end
        });
        end.and_then(|(at, _)| quoted.get(at + 1..)).unwrap_or_default()
    } else if let Some(at) = rest.rfind("}: ") {
        &rest[at + 1..]
    } else {
        rest.find(": ").map_or("", |at| &rest[at..])
    };
    format!("{kind} value{reason}")
}

/// Removes the value from the message about a field of the wrong type.
fn without_typed_value(message: &str) -> &str {
    message.split_once(", got &").map_or(message, |(before, _)| before)
}

/// Webhook that did not respond.
#[derive(Debug, PartialEq)]
pub struct AbsentWebhook {
    pub name: String,
    /// Namespace and name of its Service.
    service: Option<(String, String)>,
}

/// Returns the webhook that did not respond to a request, from a message such as `failed calling
/// webhook "check.example.dev": Post "https://hooks.shop.svc:443/check": …`.
pub fn absent_webhook(status: &Status) -> Option<AbsentWebhook> {
    let text = status.message.split_once("failed calling").filter(|_| status.code == 500)?.1;
    let mut quoted = text.split('"').skip(1).step_by(2);
    let name = quoted.next().unwrap_or_default().to_owned();
    let host = quoted.next().and_then(|url| url.strip_prefix("https://"));
    let host = host.and_then(|url| url.split([':', '/']).next()).unwrap_or_default();
    let mut parts = host.split('.');
    let service = match (parts.next(), parts.next(), parts.next()) {
        (Some(service), Some(namespace), Some("svc")) => {
            Some((namespace.to_owned(), service.to_owned()))
        }
        _ => None,
    };
    Some(AbsentWebhook { name, service })
}

/// Webhooks and Services that the component contains.
#[derive(Debug, Default)]
pub struct OwnWebhooks {
    names: BTreeSet<String>,
    services: BTreeSet<(String, String)>,
}

impl OwnWebhooks {
    pub fn of<'o>(objects: impl Iterator<Item = (&'o ObjectRef, &'o Value)>) -> Self {
        let mut own = OwnWebhooks::default();
        for (reference, object) in objects {
            if reference.group() == "admissionregistration.k8s.io" {
                let webhooks = object["webhooks"].as_array().into_iter().flatten();
                own.names
                    .extend(webhooks.filter_map(|one| one["name"].as_str().map(str::to_owned)));
            }
            if let (true, Some(namespace)) =
                (reference.is_kind("", "Service"), &reference.namespace)
            {
                own.services.insert((namespace.clone(), reference.name.clone()));
            }
            let conversion = &object["spec"]["conversion"]["webhook"]["clientConfig"]["service"];
            if let (true, Some(namespace), Some(name)) =
                (reference.is_crd(), conversion["namespace"].as_str(), conversion["name"].as_str())
            {
                own.services.insert((namespace.to_owned(), name.to_owned()));
            }
        }
        own
    }

    /// Returns whether the component contains the webhook, so that it can respond after the apply.
    pub fn contain(&self, webhook: &AbsentWebhook) -> bool {
        self.names.contains(&webhook.name)
            || webhook.service.as_ref().is_some_and(|service| self.services.contains(service))
    }
}

/// Returns whether a live object is a Job that failed. It never runs again.
pub fn is_failed_job(reference: &ObjectRef, live: &Value) -> bool {
    let mut conditions = live["status"]["conditions"].as_array().into_iter().flatten();
    reference.is_kind("batch", "Job")
        && metadata(live, "deletionTimestamp").is_none()
        && conditions.any(|one| one["type"] == "Failed" && one["status"] == "True")
}

#[cfg(test)]
mod tests;
