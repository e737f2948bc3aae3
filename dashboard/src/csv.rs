//! Lists as CSV (RFC 4180), for spreadsheets.
use chrono::{DateTime, SecondsFormat, Utc};
use schemas::{control::installs::Install, sanitize::sanitize};

/// First line of the list of installs.
pub const INSTALLS_HEADER: &str = "name,id,app,version,state,components_deployed,components,runner_state,runner_last_contact,created_at\r\n";

/// Lines of installs.
#[must_use]
pub fn installs(installs: &[Install]) -> String {
    let time = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
    let mut text = String::new();
    for install in installs {
        let deployed = install.components.iter().filter(|part| part.state == "deployed").count();
        let fields = [
            install.name.clone(),
            install.id.to_string(),
            install.app_name.clone(),
            install.config_version.to_string(),
            install.state.clone(),
            deployed.to_string(),
            install.components.len().to_string(),
            install.runner_state.clone().unwrap_or_default(),
            install.runner_last_contact.map(time).unwrap_or_default(),
            time(install.created_at),
        ];
        text.push_str(&fields.map(|field| quoted(&field)).join(","));
        text.push_str("\r\n");
    }
    text
}

/// A field in quotes. A spreadsheet would execute text that begins like a formula, so such text gets an apostrophe.
fn quoted(field: &str) -> String {
    let clean = sanitize(field);
    let is_formula = clean.trim_start().starts_with(['=', '+', '-', '@', '|', '%'])
        || field.starts_with(['\t', '\r', '\n']);
    let guard = if is_formula { "'" } else { "" };
    format!("\"{guard}{}\"", clean.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_and_no_formula_is_executed() {
        assert_eq!(quoted("acme"), "\"acme\"");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        for formula in
            ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "  =cmd|' /C calc'!A0", "\r\n=1", "|x", "%x"]
        {
            assert!(quoted(formula).starts_with("\"'"), "{formula:?}: {}", quoted(formula));
        }
        assert!(!quoted("a\r\nb,c\u{202e}").contains(['\r', '\n', '\u{202e}']));
    }
}
