//! CronJobs of `batch/v1` on a cluster that has them in `batch/v1beta1` only.
use std::io::{BufRead, BufReader, Read, Write};

use serde_json::{Value, json};

const NEWER: &str = "\"batch/v1\"";
const OLDER: &str = "\"batch/v1beta1\"";

/// Kind of a request that needs a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// Request about CronJobs.
    Objects,
    /// List of the resources in `batch/v1`.
    Resources,
}

/// Returns true for the kind that the proxy converts.
pub(crate) fn is_converted(group: &str, version: &str, kind: &str) -> bool {
    (group, version, kind) == ("batch", "v1", "CronJob")
}

/// Returns the conversion that a request needs, and its request line for the cluster. A response of
/// HTTP/1.0 has no chunks.
pub(crate) fn converted(line: &str) -> Option<(Conversion, String)> {
    let mut words = line.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let path = target.split('?').next()?;
    let below = path.strip_prefix("/apis/batch/v1")?.trim_end_matches('/');
    let segments: Vec<&str> = below.split('/').collect();
    let target = match segments.as_slice() {
        [""] => return Some((Conversion::Resources, format!("{method} {target} HTTP/1.0"))),
        ["", "cronjobs", ..] | ["", "namespaces", _, "cronjobs", ..] => {
            target.replacen("/apis/batch/v1/", "/apis/batch/v1beta1/", 1)
        }
        _ => return None,
    };
    Some((Conversion::Objects, format!("{method} {target} HTTP/1.0")))
}

/// Returns the body of a request about CronJobs for the cluster.
pub(crate) fn request(body: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(body).replace(NEWER, OLDER).into_bytes()
}

/// Copies the response of a converted request. The end of the connection is the end of the body.
pub(crate) fn respond(
    conversion: Conversion,
    server: impl Read,
    client: &mut impl Write,
) -> std::io::Result<()> {
    let mut server = BufReader::new(server);
    let mut line = String::new();
    while server.read_line(&mut line)? > 0 {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        if !["content-length", "transfer-encoding"].contains(&name.as_str()) {
            client.write_all(line.replacen("HTTP/1.0", "HTTP/1.1", 1).as_bytes())?;
        }
        if line.trim().is_empty() {
            break;
        }
        line.clear();
    }
    match conversion {
        Conversion::Objects => {
            let mut line = vec![];
            while server.read_until(b'\n', &mut line)? > 0 {
                let converted = String::from_utf8_lossy(&line).replace(OLDER, NEWER);
                client.write_all(converted.as_bytes())?;
                line.clear();
            }
        }
        Conversion::Resources => {
            let mut body = vec![];
            server.read_to_end(&mut body)?;
            client.write_all(&with_cron_jobs(body))?;
        }
    }
    Ok(())
}

fn with_cron_jobs(body: Vec<u8>) -> Vec<u8> {
    let Ok(mut list) = serde_json::from_slice::<Value>(&body) else { return body };
    let Some(resources) = list["resources"].as_array_mut() else { return body };
    if resources.iter().all(|resource| resource["kind"] != "CronJob") {
        resources.push(json!({
            "name": "cronjobs", "singularName": "", "namespaced": true, "kind": "CronJob",
            "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
        }));
    }
    list.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_about_cron_jobs_are_converted() {
        let older = |target: &str| converted(&format!("GET {target} HTTP/1.1"));
        let objects = |target: &str| Some((Conversion::Objects, format!("GET {target} HTTP/1.0")));
        assert_eq!(
            older("/apis/batch/v1/namespaces/a/cronjobs/b?dryRun=All"),
            objects("/apis/batch/v1beta1/namespaces/a/cronjobs/b?dryRun=All")
        );
        assert_eq!(older("/apis/batch/v1/cronjobs"), objects("/apis/batch/v1beta1/cronjobs"));
        let resources = (Conversion::Resources, "GET /apis/batch/v1 HTTP/1.0".to_owned());
        assert_eq!(older("/apis/batch/v1"), Some(resources));
        for other in ["/apis/batch/v1/namespaces/a/jobs/b", "/apis/batch/v1beta1/cronjobs", "/api"]
        {
            assert_eq!(older(other), None, "{other}");
        }
    }

    #[test]
    fn a_response_has_the_version_of_the_request() {
        let response = "HTTP/1.0 200 OK\r\nContent-Length: 9\r\nA: b\r\n\r\n{\"apiVersion\":\"batch/v1beta1\"}";
        let mut copied = vec![];
        respond(Conversion::Objects, response.as_bytes(), &mut copied).unwrap();
        let expected = "HTTP/1.1 200 OK\r\nA: b\r\n\r\n{\"apiVersion\":\"batch/v1\"}";
        assert_eq!(String::from_utf8(copied).unwrap(), expected);
        assert_eq!(request(b"\"batch/v1\""), b"\"batch/v1beta1\"");
        let list = with_cron_jobs(b"{\"resources\":[{\"kind\":\"Job\"}]}".to_vec());
        let list: Value = serde_json::from_slice(&list).unwrap();
        assert_eq!(list["resources"][1]["name"], "cronjobs");
    }
}
