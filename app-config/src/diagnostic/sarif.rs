//! Findings as SARIF 2.1.0, which code hosts and editors show at the line.
use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{CODES, Diagnostic, Severity};

/// What the paths are relative to, by the name that other tools have for it.
const BASE: &str = "%SRCROOT%";
/// Code hosts refuse a result without a place. What is about the directory stands at the top of the
/// one file that every directory has.
const TOP: &str = "metadata.toml";

/// One run of this tool. `version` is the tool's; `below` is where the app directory is in its
/// repository, empty when it is the top of it.
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
            "message": {"text": said(finding)},
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
                "text": "The repository of the app directory; the directory itself when it is in none.",
            }}},
            "results": results.collect::<Vec<_>>(),
        }],
    })
}

fn said(finding: &Diagnostic) -> String {
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

/// A path as a relative URI.
fn encoded(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let parts = path.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    parts.collect()
}
