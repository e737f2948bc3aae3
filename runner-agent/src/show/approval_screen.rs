//! Approval screen: the contents of a job's manifest. The vendor wrote most of the text, so it is
//! sanitized.
use schemas::{
    moment,
    plugin::details_text::{Fold, lines as detail_lines},
    sanitize::sanitize,
};
use serde_json::{Value, json};

use crate::approval::ApprovalRequest;

/// Formats one request. Only its first line is not indented, so the vendor's texts cannot look like
/// another request.
pub(super) fn screen(request: &ApprovalRequest) -> String {
    let ApprovalRequest { execution, manifest, .. } = request;
    let plugin = sanitize(&manifest.plugin.name);
    // Shows the same field that the policy compares.
    let subject =
        manifest.inputs.get(manifest.kind.subject()).and_then(Value::as_str).unwrap_or_default();
    let mut text =
        format!("{execution} {} {plugin} {}\n", manifest.kind.as_str(), sanitize(subject));
    let mut line = |key: &str, value: &str| {
        text += &format!("    {key:<10} {}\n", sanitize(value));
    };
    line("job", &manifest.job.to_string());
    line("expires", &moment::text(&request.expires_at));
    line("role", manifest.role.as_deref().unwrap_or("none"));
    if let Some(action) = &request.action {
        line("action", action);
    }
    line("manifest", &request.digest.to_string());
    if let Some(digest) = &manifest.plugin.digest {
        line("plugin", &digest.to_string());
    }
    if let Some(artifact) = &manifest.plugin.artifact {
        line("plugin", &artifact.digest.to_string());
        line("publisher", &sanitize(&artifact.publisher));
    }
    for artifact in &manifest.artifacts {
        line("artifact", &format!("{}@{}", artifact.repository, artifact.digest));
    }
    if let Some(plan) = &manifest.plan {
        line("plan", &plan.to_string());
        match &request.plan {
            Some(summary) => block(&mut text, "summary of the plan", summary),
            None => line("", "the summary of the plan is not on this runner"),
        }
        if let Some(details) = &request.details {
            text += "    details of the plan\n";
            for line in detail_lines(details, Fold::Nothing) {
                text += &format!("        {}\n", line.text);
            }
        }
    }
    if !manifest.env.is_empty() {
        let env = manifest.env.iter().map(|(name, value)| (name.clone(), value.clone().into()));
        block(&mut text, "environment", &Value::Object(env.collect()));
    }
    block(&mut text, "inputs", &manifest.inputs);
    if !manifest.secrets.is_empty() {
        block(&mut text, "sensitive values", &json!(manifest.secrets));
    }
    text
}

fn block(text: &mut String, title: &str, value: &Value) {
    *text += &format!("    {title}\n");
    write(text, value, 8);
}

/// Writes each member of a value on its own line. A string of several lines keeps its lines.
fn write(text: &mut String, value: &Value, indent: usize) {
    let mut named = |name: &str, value: &Value| {
        let start = format!("{:indent$}{}", "", sanitize(name));
        match value {
            Value::Object(_) | Value::Array(_) => {
                *text += &format!("{start}:\n");
                write(text, value, indent + 2);
            }
            Value::String(script) if script.contains('\n') => {
                *text += &format!("{start}:\n");
                for line in script.lines() {
                    *text += &format!("{:indent$}  | {}\n", "", sanitize(line));
                }
            }
            Value::String(one) => *text += &format!("{start}: {}\n", sanitize(one)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {
                *text += &format!("{start}: {value}\n");
            }
        }
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| named(name, value)),
        Value::Array(items) => items.iter().for_each(|value| named("-", value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => named("", value),
    }
}
