//! Stable versions of built-in kinds that a cluster has as beta versions only, such as
//! `autoscaling/v2` on Kubernetes 1.20.
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
};

use serde_json::{Value, json};

/// Kind that the cluster serves in a beta version only.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kind {
    group: String,
    name: String,
    plural: String,
    stable: String,
    beta: String,
}

/// Kinds that need a conversion, and the stable versions that the proxy adds.
#[derive(Debug, Default)]
pub(crate) struct OlderVersions {
    kinds: Vec<Kind>,
    /// Groups with their added versions.
    versions: Vec<(String, String)>,
    /// Lists of resources by path, such as `/apis/autoscaling/v2`.
    lists: BTreeMap<String, Value>,
}

/// Conversion of a request and of its response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conversion {
    /// Kind of the request's object.
    pub(crate) kind: String,
    /// Request line for the cluster. A response of HTTP/1.0 has no chunks.
    pub(crate) line: String,
    stable: String,
    beta: String,
}

impl OlderVersions {
    /// Reads the versions of a cluster. `get` returns the response for a path.
    pub(crate) fn of(get: impl Fn(&str) -> Option<Value>) -> OlderVersions {
        let mut older = OlderVersions::default();
        let groups = get("/apis").unwrap_or_default();
        for group in groups["groups"].as_array().into_iter().flatten() {
            let name = group["name"].as_str().unwrap_or_default();
            // The kinds of `extensions` moved to other groups. A custom kind has no stable version.
            if name != "extensions" && (!name.contains('.') || name.ends_with(".k8s.io")) {
                // The API lists newer versions first.
                for beta in versions(group) {
                    older.add(name, beta, &get);
                }
            }
        }
        older
    }

    /// Adds the kinds of a beta version that the stable version lacks.
    fn add(&mut self, group: &str, beta: &str, get: &impl Fn(&str) -> Option<Value>) {
        let Some((stable, _)) = beta.split_once("beta") else { return };
        let path = format!("/apis/{group}/{stable}");
        let known = self.lists.get(&path).cloned().or_else(|| get(&path));
        let is_served = known.as_ref().is_some_and(|list| list["resources"].is_array());
        let mut list = known.filter(|_| is_served).unwrap_or_else(|| {
            json!({
                "kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": format!("{group}/{stable}"), "resources": [],
            })
        });
        let beta_list = get(&format!("/apis/{group}/{beta}")).unwrap_or_default();
        for resource in missing(&list, &beta_list) {
            let text = |key: &str| resource[key].as_str().unwrap_or_default().to_owned();
            if !text("name").contains('/') {
                let (group, stable, beta) = (group.to_owned(), stable.to_owned(), beta.to_owned());
                let (name, plural) = (text("kind"), text("name"));
                self.kinds.push(Kind { group, name, plural, stable, beta });
            }
            list["resources"].as_array_mut().into_iter().for_each(|all| all.push(resource.clone()));
        }
        self.lists.insert(path, list);
        if !is_served {
            self.versions.push((group.to_owned(), stable.to_owned()));
        }
    }

    /// Returns true for a kind that is converted.
    pub(crate) fn converts(&self, group: &str, version: &str, kind: &str) -> bool {
        let is_it = |one: &Kind| one.group == group && one.stable == version && one.name == kind;
        self.kinds.iter().any(is_it)
    }

    /// Returns the response to a question about versions that includes the stable ones.
    pub(crate) fn response(
        &self,
        line: &str,
        get: impl Fn(&str) -> Option<Value>,
    ) -> Option<Value> {
        let path = line.strip_prefix("GET ")?.split([' ', '?']).next()?.trim_end_matches('/');
        if let Some(list) = self.lists.get(path) {
            return Some(list.clone());
        }
        let below = path.strip_prefix("/apis")?.trim_start_matches('/');
        let is_changed = |name: &str| self.versions.iter().any(|(group, _)| group == name);
        if !below.is_empty() && !is_changed(below) {
            return None;
        }
        let mut response = get(path)?;
        match response["groups"].as_array_mut() {
            Some(groups) => groups.iter_mut().for_each(|group| self.complete(group)),
            None => self.complete(&mut response),
        }
        Some(response)
    }

    /// Adds the stable versions to a group.
    fn complete(&self, group: &mut Value) {
        for (name, stable) in &self.versions {
            let is_listed = versions(group).any(|version| version == stable);
            if group["name"] == name.as_str() && !is_listed {
                let version =
                    json!({ "groupVersion": format!("{name}/{stable}"), "version": stable });
                group["versions"]
                    .as_array_mut()
                    .into_iter()
                    .for_each(|all| all.push(version.clone()));
            }
        }
    }

    /// Returns the conversion that a request needs.
    pub(crate) fn conversion(&self, line: &str) -> Option<Conversion> {
        let mut words = line.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        let path = target.split('?').next()?;
        let mut segments = path.strip_prefix("/apis/")?.split('/');
        let (group, version) = (segments.next()?, segments.next()?);
        let first = segments.next()?;
        let plural = if first == "namespaces" { segments.nth(1)? } else { first };
        let kind = self
            .kinds
            .iter()
            .find(|kind| kind.group == group && kind.stable == version && kind.plural == plural)?;
        let (stable, beta) = (&kind.stable, &kind.beta);
        let target =
            target.replacen(&format!("/{group}/{stable}/"), &format!("/{group}/{beta}/"), 1);
        Some(Conversion {
            kind: kind.name.clone(),
            line: format!("{method} {target} HTTP/1.0"),
            stable: format!("\"{group}/{stable}\""),
            beta: format!("\"{group}/{beta}\""),
        })
    }
}

fn versions(group: &Value) -> impl Iterator<Item = &str> {
    let versions = group["versions"].as_array().into_iter().flatten();
    versions.filter_map(|one| one["version"].as_str())
}

/// Returns the resources of a list that another one does not have.
fn missing(list: &Value, more: &Value) -> Vec<Value> {
    let has = |name: &Value| {
        list["resources"].as_array().into_iter().flatten().any(|one| one["name"] == *name)
    };
    let more = more["resources"].as_array().into_iter().flatten();
    more.filter(|resource| !has(&resource["name"])).cloned().collect()
}

impl Conversion {
    /// Returns the body of a request for the cluster.
    pub(crate) fn request(&self, body: &[u8]) -> Vec<u8> {
        String::from_utf8_lossy(body).replace(&self.stable, &self.beta).into_bytes()
    }

    /// Copies the response of a converted request. The end of the connection is the end of the body.
    pub(crate) fn respond(
        &self,
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
        let mut line = vec![];
        while server.read_until(b'\n', &mut line)? > 0 {
            let converted = String::from_utf8_lossy(&line).replace(&self.beta, &self.stable);
            client.write_all(converted.as_bytes())?;
            line.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a response of a cluster like Kubernetes 1.20.
    fn get(path: &str) -> Option<Value> {
        let resources = |list: &[(&str, &str)]| {
            let resource = |(name, kind): &(&str, &str)| json!({ "name": name, "kind": kind });
            json!({ "resources": list.iter().map(resource).collect::<Vec<_>>() })
        };
        let scalers = [
            ("horizontalpodautoscalers", "HorizontalPodAutoscaler"),
            ("horizontalpodautoscalers/status", "HorizontalPodAutoscaler"),
        ];
        let version = |name: &str| json!({ "version": name });
        let autoscaling = json!({
            "name": "autoscaling",
            "versions": [version("v1"), version("v2beta2"), version("v2beta1")],
        });
        Some(match path {
            "/apis" => json!({ "groups": [
                autoscaling,
                { "name": "batch", "versions": [version("v1"), version("v1beta1")] },
                { "name": "custom.io", "versions": [version("v1beta1")] },
            ] }),
            "/apis/autoscaling" => autoscaling,
            "/apis/autoscaling/v2beta1" | "/apis/autoscaling/v2beta2" => resources(&scalers),
            "/apis/batch/v1" => resources(&[("jobs", "Job")]),
            "/apis/batch/v1beta1" => resources(&[("cronjobs", "CronJob")]),
            "/apis/autoscaling/v2" => json!({ "kind": "Status", "code": 404 }),
            _ => return None,
        })
    }

    #[test]
    fn only_kinds_without_a_stable_version_are_converted() {
        let older = OlderVersions::of(get);
        let line = |target: &str| {
            let conversion = older.conversion(&format!("GET {target} HTTP/1.1"));
            conversion.map(|conversion| conversion.line)
        };
        assert_eq!(
            line("/apis/batch/v1/namespaces/a/cronjobs/b?dryRun=All").as_deref(),
            Some("GET /apis/batch/v1beta1/namespaces/a/cronjobs/b?dryRun=All HTTP/1.0")
        );
        // The newest beta version has the most fields.
        assert_eq!(
            line("/apis/autoscaling/v2/horizontalpodautoscalers").as_deref(),
            Some("GET /apis/autoscaling/v2beta2/horizontalpodautoscalers HTTP/1.0")
        );
        for other in ["/apis/batch/v1/namespaces/a/jobs/b", "/apis/batch/v1beta1/cronjobs", "/api"]
        {
            assert_eq!(line(other), None, "{other}");
        }
        assert!(older.converts("batch", "v1", "CronJob") && !older.converts("batch", "v1", "Job"));
    }

    #[test]
    fn questions_about_versions_include_the_stable_ones() {
        let older = OlderVersions::of(get);
        let response = |path: &str| older.response(&format!("GET {path} HTTP/1.1"), get);
        let scalers = response("/apis/autoscaling/v2?timeout=32s").unwrap();
        assert_eq!(scalers["groupVersion"], "autoscaling/v2");
        assert_eq!(scalers["resources"].as_array().unwrap().len(), 2);
        let batch = response("/apis/batch/v1/").unwrap();
        assert_eq!(batch["resources"][1]["kind"], "CronJob");
        let groups = response("/apis").unwrap();
        assert_eq!(groups["groups"][0]["versions"][3]["version"], "v2");
        assert_eq!(groups["groups"][2]["versions"].as_array().unwrap().len(), 1);
        assert_eq!(response("/apis/autoscaling").unwrap()["versions"][3]["version"], "v2");
        assert_eq!((response("/apis/batch"), response("/apis/custom.io")), (None, None));
    }

    #[test]
    fn a_response_has_the_version_of_the_request() {
        let conversion =
            OlderVersions::of(get).conversion("GET /apis/batch/v1/cronjobs HTTP/1.1").unwrap();
        let response = "HTTP/1.0 200 OK\r\nContent-Length: 9\r\nA: b\r\n\r\n{\"apiVersion\":\"batch/v1beta1\"}";
        let mut copied = vec![];
        conversion.respond(response.as_bytes(), &mut copied).unwrap();
        let expected = "HTTP/1.1 200 OK\r\nA: b\r\n\r\n{\"apiVersion\":\"batch/v1\"}";
        assert_eq!(String::from_utf8(copied).unwrap(), expected);
        assert_eq!(conversion.request(b"\"batch/v1\""), b"\"batch/v1beta1\"");
    }
}
