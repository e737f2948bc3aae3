//! Double of an API server, for responses that the test cluster cannot return. It stores objects,
//! and imitates neither admission nor managed fields of others.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

/// Request to the double.
pub struct Request {
    pub method: String,
    pub path: String,
    pub query: String,
    pub body: Value,
}

/// Response: status and body.
pub type Response = (u16, Value);

/// Objects by the path of their resource.
pub type Objects = BTreeMap<String, Value>;

/// Server on a local port, until the end of the process.
pub struct ApiServer {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl ApiServer {
    /// Starts a server. `intercept` can respond to a request before or after the default response.
    pub fn start(
        mut intercept: impl FnMut(&Request, &mut Objects) -> Option<Response> + Send + 'static,
    ) -> ApiServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(vec![]));
        let server = ApiServer { address, requests: Arc::clone(&requests) };
        let respond = move |request: &Request, objects: &mut Objects| {
            requests.lock().unwrap().push(format!("{} {}", request.method, request.path));
            intercept(request, objects).unwrap_or_else(|| default_response(request, objects))
        };
        let shared = Arc::new(Mutex::new((respond, Objects::new())));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    serve(&stream, |request| {
                        let (respond, objects) = &mut *shared.lock().unwrap();
                        respond(request, objects)
                    })
                });
            }
        });
        server
    }

    pub fn kubeconfig(&self, dir: &Path) -> PathBuf {
        let path = dir.join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: '{}'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{token: t}}}}]\n",
            self.address
        );
        fs::write(&path, text).unwrap();
        path
    }

    /// Returns the number of requests that begin with a text.
    pub fn count(&self, part: &str) -> usize {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|request| request.starts_with(part)).count()
    }
}

/// Responds to the requests of one connection.
fn serve(stream: &TcpStream, mut respond: impl FnMut(&Request) -> Response) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let mut parts = line.split_whitespace();
        let (method, target) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let header = header.trim().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let (path, query) = (path.to_owned(), query.to_owned());
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let (status, body) = respond(&Request { method, path, query, body });
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        (&mut &*stream).write_all(format!("{head}{body}").as_bytes()).ok()?;
    }
}

/// Response with an error.
pub fn error(code: u16, reason: &str, message: &str) -> Response {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure",
                         "code": code, "reason": reason, "message": message });
    (code, status)
}

fn kinds(api_version: &str, kinds: &[(&str, &str, bool)]) -> Value {
    let resources = kinds.iter().map(|(plural, kind, namespaced)| {
        json!({ "name": plural, "kind": kind, "singularName": "", "namespaced": namespaced,
                "verbs": ["get", "list", "patch", "create", "delete"] })
    });
    json!({ "kind": "APIResourceList", "groupVersion": api_version,
            "resources": resources.collect::<Vec<_>>() })
}

fn default_response(request: &Request, objects: &mut Objects) -> Response {
    let Request { method, path, query, body } = request;
    let is_dry_run = query.contains("dryRun=All");
    match (method.as_str(), path.as_str()) {
        ("GET", "/api/v1") => {
            let core = [
                ("namespaces", "Namespace", false),
                ("secrets", "Secret", true),
                ("configmaps", "ConfigMap", true),
                ("services", "Service", true),
            ];
            (200, kinds("v1", &core))
        }
        ("GET", "/apis") => (200, json!({ "kind": "APIGroupList", "groups": [] })),
        ("GET", "/api/v1/namespaces/kube-system") => {
            (200, json!({ "kind": "Namespace", "metadata": { "uid": "cluster" } }))
        }
        ("GET", _) if objects.contains_key(path) => (200, objects[path].clone()),
        ("GET", _) if path.ends_with('s') => {
            let prefix = format!("{path}/");
            let items = objects.iter().filter(|(path, _)| path.starts_with(&prefix));
            let items: Vec<&Value> = items.map(|(_, object)| object).collect();
            (200, json!({ "kind": "List", "metadata": {}, "items": items }))
        }
        ("POST", _) => {
            let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
            if objects.contains_key(&path) {
                return error(409, "AlreadyExists", "the object exists");
            }
            store(&path, body, is_dry_run, objects)
        }
        ("PUT", _) => {
            let version = &objects[path]["metadata"]["resourceVersion"];
            if *version != body["metadata"]["resourceVersion"] {
                return error(409, "Conflict", "the object has been modified");
            }
            store(path, body, is_dry_run, objects)
        }
        ("PATCH", _) => {
            let mut object = body.clone();
            let manager = query.split('&').find_map(|part| part.strip_prefix("fieldManager="));
            let manager = manager.unwrap_or_default().replace("%3A", ":").replace("%2F", "/");
            object["metadata"]["managedFields"] = json!([{ "manager": manager,
                "operation": "Apply", "fieldsV1": { "f:data": { "f:key": {} } } }]);
            store(path, &object, is_dry_run, objects)
        }
        ("DELETE", _) => match objects.remove(path) {
            Some(object) => (200, object),
            None => error(404, "NotFound", "no such object"),
        },
        _ => error(404, "NotFound", "no such object"),
    }
}

fn store(path: &str, object: &Value, is_dry_run: bool, objects: &mut Objects) -> Response {
    let known = objects.get(path).map(|known| &known["metadata"]);
    let version =
        known.map_or(0, |known| known["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap());
    let mut object = object.clone();
    object["metadata"]["uid"] = json!(format!("uid-{path}"));
    object["metadata"]["resourceVersion"] = json!((version + 1).to_string());
    if !is_dry_run {
        objects.insert(path.to_owned(), object.clone());
    }
    (200, object)
}
