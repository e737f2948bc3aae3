//! Findings as SARIF 2.1.0, which code hosts and editors show at the line.
use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{CODES, Diagnostic, Severity};

/// One run of this tool. `version` is the tool's.
pub fn sarif(findings: &[Diagnostic], version: &str) -> Value {
    let used: BTreeSet<&str> = findings.iter().map(|finding| finding.code).collect();
    let rules: Vec<&(&str, &str)> = CODES.iter().filter(|(code, _)| used.contains(code)).collect();
    let results = findings.iter().map(|finding| {
        let mut result = json!({
            "ruleId": finding.code,
            "ruleIndex": rules.iter().position(|(code, _)| *code == finding.code),
            "level": match finding.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            "message": {"text": said(finding)},
        });
        if !finding.file.is_empty() {
            result["locations"] = json!([{"physicalLocation": place(finding)}]);
        }
        result
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

fn place(finding: &Diagnostic) -> Value {
    let mut place = json!({"artifactLocation": {"uri": encoded(&finding.file)}});
    if finding.line > 0 {
        let start = finding.column.max(1);
        place["region"] = json!({
            "startLine": finding.line,
            "startColumn": start,
            "endColumn": start + finding.length.max(1),
        });
    }
    place
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
