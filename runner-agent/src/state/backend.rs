//! HTTP backend of Terraform on a loopback port, for one job.
//!
//! | request | response |
//! |---|---|
//! | GET | 200 with the state, 204 without one |
//! | POST `?ID=` | 200; 403 in a plan; 409 if another state is newer; 413 above 100 MiB; 423 if another client has the lock |
//! | LOCK | 200; 423 with the owner |
//! | UNLOCK | 200; 409 with the owner, if the caller is not the owner |
//!
//! A read that fails is never 404 or 204: Terraform would plan without a state.
//!
//! Every process of the host can open connections to the port. Those without an authenticated
//! request are limited in number and time, and take no capacity from the job. Terraform repeats a
//! request whose connection was closed: the same state, lock or unlock can arrive twice.
use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    HeaderMap, Request, Response, StatusCode, body::Incoming, header::AUTHORIZATION,
    server::conn::http1, service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use md5::{Digest as _, Md5};
use rand::RngCore as _;
use schemas::runner::STATE_BYTES;
use serde::Deserialize;
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::session::{Session, WriteError};
use crate::tasks;

const USER: &str = "stead";
/// Maximum number of concurrent requests of the job.
const REQUESTS: usize = 32;
/// Maximum number of connections without an authenticated request. The next one replaces the
/// oldest.
const ANONYMOUS: usize = 256;
/// Time for the head of the request of a connection.
const HEAD: Duration = Duration::from_secs(5);
/// Largest lock in bytes.
const LOCK_BYTES: usize = 64 << 10;

/// Backend that serves one job until it is dropped.
pub struct Backend {
    env: Vec<(String, String)>,
    password: Zeroizing<String>,
    stop: CancellationToken,
}

struct Serving {
    session: Arc<Session>,
    path: String,
    authorization: String,
    /// True if the job may change the state.
    is_writable: bool,
    lock: Mutex<Option<Lock>>,
    requests: Semaphore,
}

/// Connection that is closed if there are too many without an authenticated request.
struct Connection(Mutex<Option<CancellationToken>>);

impl Connection {
    /// Keeps the connection open. Returns false if it was closed before.
    fn authenticate(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }

    fn is_anonymous(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Closes the connection, unless it has authenticated.
    fn close(&self) {
        if let Some(close) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            close.cancel();
        }
    }
}

struct Lock {
    id: String,
    /// Body of the lock, which names its owner.
    owner: Bytes,
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Backend {
    /// Starts a backend on this port, with a random path and password. A plan must not be able to
    /// write: each provider and program of it has the settings.
    pub fn start(
        session: Arc<Session>,
        port: &std::net::TcpListener,
        is_writable: bool,
    ) -> io::Result<Self> {
        let port = port.try_clone()?;
        port.set_nonblocking(true)?;
        let listener = TcpListener::from_std(port)?;
        let (path, password) = (format!("/{}", random()), Zeroizing::new(random()));
        let url = format!("http://{}{path}", listener.local_addr()?);
        let credentials = Zeroizing::new(format!("{USER}:{}", *password));
        let authorization = format!("Basic {}", STANDARD.encode(credentials.as_bytes()));
        let (lock, requests) = (Mutex::new(None), Semaphore::new(REQUESTS));
        let serving = Serving { session, path, authorization, is_writable, lock, requests };
        let serving = Arc::new(serving);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tasks::detach("state backend", async move {
            stopped.run_until_cancelled(accept(&listener, &serving, &stopped)).await;
        });
        let env = [
            ("TF_HTTP_ADDRESS", url.clone()),
            ("TF_HTTP_LOCK_ADDRESS", url.clone()),
            ("TF_HTTP_UNLOCK_ADDRESS", url),
            ("TF_HTTP_UPDATE_METHOD", "POST".into()),
            ("TF_HTTP_LOCK_METHOD", "LOCK".into()),
            ("TF_HTTP_UNLOCK_METHOD", "UNLOCK".into()),
            ("TF_HTTP_USERNAME", USER.into()),
            ("TF_HTTP_PASSWORD", password.to_string()),
            // For connections that the backend closed: it waits itself for everything else.
            ("TF_HTTP_RETRY_MAX", "5".into()),
            ("TF_HTTP_RETRY_WAIT_MIN", "1".into()),
            ("TF_HTTP_RETRY_WAIT_MAX", "1".into()),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value)).into();
        Ok(Backend { env, password, stop })
    }

    /// Returns the settings of Terraform. Settings in files would end up in saved plans, which
    /// another job applies with another backend.
    pub fn env(&self) -> impl Iterator<Item = (String, String)> {
        self.env.iter().cloned()
    }

    /// Returns the password, to redact it.
    pub fn password(&self) -> &Zeroizing<String> {
        &self.password
    }
}

fn random() -> String {
    let mut bytes = [0; 16];
    rand::thread_rng().fill_bytes(&mut bytes);
    hex::encode(bytes)
}

async fn accept(listener: &TcpListener, serving: &Arc<Serving>, stopped: &CancellationToken) {
    let mut anonymous: VecDeque<Weak<Connection>> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // No free file descriptor.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        anonymous.retain(|open| open.upgrade().is_some_and(|open| open.is_anonymous()));
        if anonymous.len() >= ANONYMOUS
            && let Some(oldest) = anonymous.pop_front().and_then(|oldest| oldest.upgrade())
        {
            oldest.close();
        }
        let close = stopped.child_token();
        let connection = Arc::new(Connection(Mutex::new(Some(close.clone()))));
        anonymous.push_back(Arc::downgrade(&connection));
        let serving = Arc::clone(serving);
        tasks::detach("state connection", async move {
            let service = service_fn(|request| {
                let (serving, connection) = (Arc::clone(&serving), Arc::clone(&connection));
                async move { Ok::<_, Infallible>(serving.respond(&connection, request).await) }
            });
            // One request per connection: otherwise a client could send a state on a connection
            // that is being closed.
            let connection = http1::Builder::new()
                .keep_alive(false)
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .serve_connection(TokioIo::new(stream), service);
            // A broken connection concerns only its client.
            let _ended = close.run_until_cancelled(connection).await;
        });
        // Let the connection read its request before many others take its place.
        tokio::task::yield_now().await;
    }
}

impl Serving {
    async fn respond(
        &self,
        connection: &Connection,
        request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        let authorization = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
        // Equal digests mean equal bytes, and take the same time to compare.
        let is_authorized = authorization.is_some_and(|given| {
            proof::sha256(given) == proof::sha256(self.authorization.as_bytes())
        });
        if !is_authorized {
            return response(StatusCode::UNAUTHORIZED, "");
        }
        if !connection.authenticate() {
            return response(StatusCode::SERVICE_UNAVAILABLE, "");
        }
        let _permit = self.requests.acquire().await;
        if request.uri().path() != self.path {
            return response(StatusCode::FORBIDDEN, "");
        }
        match request.method().as_str() {
            "GET" => match self.session.read().await {
                Some(state) => response(StatusCode::OK, state),
                None => response(StatusCode::NO_CONTENT, ""),
            },
            "POST" if self.is_writable => self.post(request).await,
            "POST" => response(StatusCode::FORBIDDEN, "a plan does not change the state"),
            "LOCK" => self.lock(request).await,
            "UNLOCK" => self.unlock(request).await,
            _ => response(StatusCode::METHOD_NOT_ALLOWED, ""),
        }
    }

    async fn post(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let id = request.uri().query().and_then(|query| query.strip_prefix("ID="));
        if let Some(rejection) = self.not_owner(id) {
            return rejection;
        }
        let most = usize::try_from(STATE_BYTES).unwrap_or(usize::MAX);
        let state = match body(request, most).await {
            Ok(bytes) => Zeroizing::new(Vec::from(bytes)),
            Err(unreadable) => return unreadable,
        };
        match self.session.write(state).await {
            Ok(()) => response(StatusCode::OK, ""),
            Err(error) => {
                let status = match error {
                    WriteError::Invalid(_) => StatusCode::BAD_REQUEST,
                    WriteError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
                    WriteError::Conflict(_) => StatusCode::CONFLICT,
                    // Terraform repeats a 5xx, and each attempt would wait for the server again.
                    WriteError::NotStored(_) => StatusCode::FAILED_DEPENDENCY,
                };
                self.session.line(&format!("the state was not stored: {error}"));
                response(status, error.to_string())
            }
        }
    }

    /// Returns a rejection if another caller holds the lock. Without a lock, only a caller that uses
    /// none can write (`-lock=false`): a rejection would come after the changes.
    fn not_owner(&self, id: Option<&str>) -> Option<Response<Full<Bytes>>> {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        match lock.as_ref() {
            Some(lock) if id == Some(lock.id.as_str()) => None,
            Some(lock) => Some(response(StatusCode::LOCKED, lock.owner.clone())),
            None if id.is_none() => None,
            None => Some(response(StatusCode::LOCKED, "the lock was released")),
        }
    }

    async fn lock(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let owner = match body(request, LOCK_BYTES).await {
            Ok(owner) => owner,
            Err(unreadable) => return unreadable,
        };
        let Some(id) = lock_id(&owner) else {
            return response(StatusCode::BAD_REQUEST, "the lock has no ID");
        };
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        match lock.as_ref() {
            // A repeated request, whose response was lost.
            Some(lock) if lock.id == id => response(StatusCode::OK, ""),
            Some(lock) => response(StatusCode::LOCKED, lock.owner.clone()),
            None => {
                *lock = Some(Lock { id, owner });
                response(StatusCode::OK, "")
            }
        }
    }

    async fn unlock(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let id = match body(request, LOCK_BYTES).await {
            Ok(owner) => lock_id(&owner),
            Err(unreadable) => return unreadable,
        };
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        match lock.as_ref() {
            Some(held) if Some(&held.id) != id.as_ref() => {
                response(StatusCode::CONFLICT, held.owner.clone())
            }
            Some(_) | None => {
                *lock = None;
                response(StatusCode::OK, "")
            }
        }
    }
}

fn lock_id(owner: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Owner {
        #[serde(rename = "ID")]
        id: String,
    }
    let owner: Owner = serde_json::from_slice(owner).ok()?;
    (!owner.id.is_empty()).then_some(owner.id)
}

/// Reads the body, and compares it with its digest if the client sends one, as Terraform does.
async fn body(request: Request<Incoming>, most: usize) -> Result<Bytes, Response<Full<Bytes>>> {
    let digest = md5_of(request.headers());
    let body = match Limited::new(request.into_body(), most).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return Err(response(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"));
        }
        Err(_) => return Err(response(StatusCode::BAD_REQUEST, "cannot read the body")),
    };
    if digest.is_some_and(|digest| digest.as_deref() != Some(Md5::digest(&body).as_slice())) {
        return Err(response(StatusCode::BAD_REQUEST, "the body differs from its Content-MD5"));
    }
    Ok(body)
}

/// Returns the digest in the header `Content-MD5`, which is `None` within `Some` if it is invalid.
fn md5_of(headers: &HeaderMap) -> Option<Option<Vec<u8>>> {
    headers.get("content-md5").map(|value| STANDARD.decode(value).ok())
}

fn response(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}
