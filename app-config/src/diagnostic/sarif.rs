//! Findings as SARIF 2.1.0, which code hosts and editors show next to the line.
use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{CODES, Diagnostic, Severity};

/// Name of the base directory of all paths, as other tools spell it.
const BASE: &str = "%SRCROOT%";
/// File for findings about the directory. Code hosts reject a result without a location, and every
/// valid app directory has this file.
const TOP: &str = "metadata.toml";

/// Converts the findings of one run. `version` is the version of the tool. `below` is the path of
/// the app directory in its repository. The path is empty if the app directory is the root.
pub fn sarif(findings: &[Diagnostic], version: &str, below: &str) -> Value {
    let used: BTreeSet<&str> = findings.iter().map(|finding| finding.code).collect();
    let rules: Vec<&(&str, &str)> = CODES.iter().filter(|(code, _)| used.contains(code)).collect();
    let results = findings.iter().map(|finding| {
        json!({
            "ruleId": finding.code,
            "ruleIndex": rules.iter().position(|(code, _)| *code == finding.code),
            "level": match finding.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            "message": {"text": message_text(finding)},
            "locations": [{"physicalLocation": place(finding, below)}],
        })
    });
    let rule = |(code, meaning): &&(&str, &str)| json!({"id": code, "shortDescription": {"text": meaning}});
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "stead",
                "version": version,
                "rules": rules.iter().map(rule).collect::<Vec<_>>(),
            }},
            "columnKind": "unicodeCodePoints",
            "originalUriBaseIds": {BASE: {"description": {
                "text": "Repository of the app directory, or the directory itself if it is in no repository.",
            }}},
            "results": results.collect::<Vec<_>>(),
        }],
    })
}

fn message_text(finding: &Diagnostic) -> String {
    match finding.remedy.as_str() {
        "" => finding.message.clone(),
        remedy => format!("{}\n{remedy}", finding.message),
    }
}

fn place(finding: &Diagnostic, below: &str) -> Value {
    let file = if finding.file.is_empty() { TOP } else { &finding.file };
    let path = if below.is_empty() { file.to_string() } else { format!("{below}/{file}") };
    let start = finding.column.max(1);
    let region = match finding.line {
        0 => json!({"startLine": 1}),
        line => json!({
            "startLine": line,
            "startColumn": start,
            "endColumn": start + finding.length.max(1),
        }),
    };
    json!({"artifactLocation": {"uri": encoded(&path), "uriBaseId": BASE}, "region": region})
}

/// Encodes a path as a relative URI.
fn encoded(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let parts = path.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    parts.collect()
}
