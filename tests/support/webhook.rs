//! Admission webhook of a cluster, on a loopback address.
use std::{
    fs,
    io::{BufRead, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::Arc,
};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::{Certificates, git::base64};

/// Response of a webhook to one request.
#[derive(Debug, Clone, PartialEq)]
pub enum Admission {
    Allow,
    /// Rejects the object with a message.
    Deny(String),
    /// Changes the object by a JSON patch.
    Patch(Value),
}

/// Running webhook, until the process ends.
pub struct Webhook {
    certificates: Certificates,
    port: u16,
}

impl Webhook {
    /// Starts a webhook. `decide` gets the request of each admission review.
    pub fn start(decide: impl Fn(&Value) -> Admission + Send + Sync + 'static) -> Webhook {
        let _first = rustls::crypto::ring::default_provider().install_default();
        let certificates = Certificates::for_ip("127.0.0.1");
        let config = certificates.server_config();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let decide = Arc::new(decide);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, decide) = (Arc::clone(&config), Arc::clone(&decide));
                std::thread::spawn(move || serve(stream, config, decide.as_ref()));
            }
        });
        Webhook { certificates, port }
    }

    /// Returns `clientConfig` of a webhook configuration.
    pub fn client_config(&self) -> Value {
        let ca = base64(&fs::read_to_string(self.certificates.ca()).unwrap());
        json!({"url": format!("https://127.0.0.1:{}/", self.port), "caBundle": ca})
    }
}

/// Responds to the reviews of one connection.
fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    decide: &impl Fn(&Value) -> Admission,
) -> Option<()> {
    let connection = ServerConnection::new(config).ok()?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    loop {
        let length = head(&mut stream)?;
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        let review: Value = serde_json::from_slice(&body).ok()?;
        let response = response(&review["request"], decide).to_string();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ";
        write!(stream.get_mut(), "{head}{}\r\n\r\n{response}", response.len()).ok()?;
        stream.get_mut().flush().ok()?;
    }
}

/// Reads the head of a request, and returns the length of its body.
fn head(stream: &mut impl BufRead) -> Option<usize> {
    let mut length = None;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            return length;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok();
        }
    }
}

fn response(request: &Value, decide: &impl Fn(&Value) -> Admission) -> Value {
    let mut response = json!({"uid": request["uid"], "allowed": true});
    match decide(request) {
        Admission::Allow => {}
        Admission::Deny(message) => {
            response["allowed"] = false.into();
            response["status"] = json!({"message": message});
        }
        Admission::Patch(patch) => {
            response["patch"] = base64(&patch.to_string()).into();
            response["patchType"] = "JSONPatch".into();
        }
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}
