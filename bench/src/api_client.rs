//! Calls of the Control API with the owner's token.
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request,
    header::{AUTHORIZATION, CONTENT_TYPE},
};

use crate::wire::Wire;

/// Address and token of a caller.
#[derive(Clone)]
pub struct ApiClient {
    pub control: String,
    token: String,
}

impl ApiClient {
    pub fn new(control: &str, token: &str) -> ApiClient {
        ApiClient { control: control.into(), token: token.into() }
    }

    /// Creates a caller. Its first request opens the connection.
    pub fn wire(&self) -> Wire {
        Wire::to(&self.control)
    }

    pub fn get(&self, path: &str) -> Request<Full<Bytes>> {
        let request = Request::get(path).header(AUTHORIZATION, self.bearer());
        request.body(Full::default()).unwrap()
    }

    /// Request of a command without a body, with an optional idempotency key.
    pub fn post(&self, path: &str, key: Option<&str>) -> Request<Full<Bytes>> {
        let mut request = Request::post(path).header(AUTHORIZATION, self.bearer());
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        request.body(Full::default()).unwrap()
    }

    /// Request of a command with a body.
    pub fn send(&self, path: &str, kind: &str, body: Bytes) -> Request<Full<Bytes>> {
        let request = Request::post(path).header(AUTHORIZATION, self.bearer());
        request.header(CONTENT_TYPE, kind).body(Full::new(body)).unwrap()
    }

    /// Token of the owner.
    pub fn token(&self) -> &str {
        &self.token
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.token)
    }
}
