//! Chart in a chart repository, which the build runner pulls.
use domain::git::without_userinfo;

use super::section::Section;
use crate::model::HelmRepo;

pub fn read(section: Section<'_>) -> HelmRepo {
    let (repo_url, chart) = (section.required("repo_url"), section.required("chart"));
    // A missing key is reported already.
    if !repo_url.is_empty()
        && let Some((message, remedy)) = invalid_url(&repo_url)
    {
        section.error("repo_url", "bad_repository", message, remedy);
    }
    if !chart.is_empty() && !is_chart(&chart) {
        let message = format!("{chart:?} is not the name of a chart");
        let remedy = "use letters, digits, `-`, `_`, `.` and `/`, and no `-` at the start";
        section.error("chart", "bad_repository", message, remedy);
    }
    let repo = HelmRepo { repo_url, chart, version: section.string("version") };
    section.finish();
    repo
}

/// Returns the problem of an address that the build runner does not pull from, and its remedy.
fn invalid_url(url: &str) -> Option<(String, &'static str)> {
    let shown = without_userinfo(url);
    let Some(rest) = ["https://", "oci://"].iter().find_map(|scheme| url.strip_prefix(scheme))
    else {
        let message =
            format!("cannot pull charts from {shown:?}: it is not an https:// or oci:// URL");
        return Some((message, "use the https:// or oci:// URL of the chart repository"));
    };
    let host = rest.split('/').next().unwrap_or_default();
    if host.contains('@') {
        let message = format!("cannot pull charts from {shown:?}: the URL contains a credential");
        let remedy = "remove the credential: every reader of the config can see it";
        return Some((message, remedy));
    }
    let is_plain = |c: char| c.is_ascii_graphic() && !"\\\"'".contains(c);
    let is_valid = !host.is_empty() && url.chars().all(is_plain);
    (!is_valid).then(|| {
        let message = format!("cannot pull charts from {shown:?}: it is not a URL");
        (message, "correct the URL")
    })
}

fn is_chart(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    name.chars().all(is_plain) && !name.starts_with(['-', '.', '/'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_public_https_or_oci_address_is_a_chart_repository() {
        for url in
            ["https://charts.example.com/stable", "oci://ghcr.io/acme/charts", "https://h:8443"]
        {
            assert_eq!(invalid_url(url), None, "{url}");
        }
        for (url, expected) in [
            ("http://charts.example.com", "not an https:// or oci:// URL"),
            ("charts.example.com", "not an https:// or oci:// URL"),
            ("file:///srv/charts", "not an https:// or oci:// URL"),
            ("https://me:secret@charts.example.com", "contains a credential"),
            ("http://me:secret@charts.example.com", "not an https:// or oci:// URL"),
            ("https://", "not a URL"),
            ("https://host/a b", "not a URL"),
        ] {
            let (message, _) = invalid_url(url).unwrap();
            assert!(message.contains(expected) && !message.contains("secret"), "{url}: {message}");
        }
    }

    #[test]
    fn a_chart_is_no_option_of_helm() {
        assert!(is_chart("coder") && is_chart("team/web_2.x"));
        for name in ["--repo", "-x", "../x", "/etc/x", "a b", "{{ .x }}"] {
            assert!(!is_chart(name), "{name}");
        }
    }
}
