//! Requests to the API server. Objects are JSON values, which preserves unknown fields.

use std::time::Duration;

use kube::{
    Client, Error,
    api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    config::Kubeconfig,
    core::{Request, Status},
};
use serde_json::{Value, json};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    failure::{Failure, Outcome},
    kinds::Kind,
    kubeconfig,
    object::{ObjectRef, metadata},
    settings::Component,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a response without effects.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a write. An API server ends a request after 60 s.
const WRITE_TIMEOUT: Duration = Duration::from_secs(70);
/// Maximum number of attempts for a request that the server did not process, and that can be
/// repeated without another effect.
const ATTEMPTS: u32 = 6;
/// Time after the start of a request from which on it is not repeated.
const RETRY_LIMIT: Duration = Duration::from_secs(20);
/// Initial back-off between two attempts. Each attempt doubles it.
const BACK_OFF: Duration = Duration::from_millis(250);
/// Number of concurrent requests.
pub const CONCURRENCY: usize = 8;

/// Client of this process with the content of its kubeconfig.
static CLIENT: Mutex<Option<(Vec<u8>, Client)>> = Mutex::const_new(None);

/// Connection to a cluster with the field manager of one component.
pub struct Cluster {
    pub client: Client,
    pub manager: String,
    /// A dry run ignores conflicts. A change never does.
    pub forces_dry_runs: bool,
    /// Cancels the back-off between two attempts.
    stop: CancellationToken,
}

/// Reason why a request to the API server failed.
#[derive(Debug)]
pub enum RequestError {
    /// Response of the server.
    Status(Box<Status>),
    /// The server did not respond, or its response is invalid.
    Connection(String),
}

impl RequestError {
    pub fn status(&self) -> Option<&Status> {
        match self {
            RequestError::Status(status) => Some(status),
            RequestError::Connection(_) => None,
        }
    }

    pub fn has_code(&self, code: u16) -> bool {
        self.status().is_some_and(|status| status.code == code)
    }

    /// Returns whether the same request can succeed later: the server did not respond, is
    /// overloaded, or is changing its leader.
    pub fn is_transient(&self) -> bool {
        match self {
            RequestError::Connection(_) => true,
            RequestError::Status(status) => {
                [429, 502, 503, 504].contains(&status.code)
                    || status.code == 500 && status.message.contains("etcdserver:")
            }
        }
    }

    /// Returns whether RBAC denies the request. Rejections by quotas and webhooks have the same
    /// status, 403.
    pub fn is_denied(&self) -> bool {
        self.has_code(403)
            && self.status().is_some_and(|status| status.message.contains("is forbidden: User "))
    }

    /// Returns whether the server rejects the content of the request, so that a retry would fail
    /// again.
    pub fn is_rejection(&self) -> bool {
        self.status().is_some_and(|status| {
            let is_client_error = (400..500).contains(&status.code);
            let can_recover = [401, 408, 409, 429].contains(&status.code);
            // API servers before 1.22 return an internal error for an object that violates its
            // schema.
            let is_untyped = status.message.contains("typed patch object");
            is_untyped || is_client_error && !can_recover && !self.is_denied()
        })
    }

    /// Converts the error to the failure of an operation, with a remedy.
    pub fn during(self, operation: &str) -> Failure {
        let why = match &self {
            RequestError::Status(status) => status.message.trim().to_owned(),
            RequestError::Connection(why) => why.clone(),
        };
        let remedy = match self.status().map(|status| status.code) {
            Some(401) => "; the credentials of the kubeconfig are invalid or expired: renew them",
            Some(403) if self.is_denied() => {
                "; allow it in the RBAC rules of the kubeconfig's user"
            }
            Some(_) => "",
            None => "; check that the API server is reachable from the runner's host",
        };
        Failure::failed(format!("cannot {operation}: {why}{remedy}"))
    }
}

impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        if let Error::Api(status) = error {
            return RequestError::Status(status);
        }
        // The other variants are errors of the transport or of the client's configuration.
        RequestError::Connection(chain(&error))
    }
}

/// Joins the messages of an error and its causes. Each transport layer adds one.
fn chain(error: &dyn std::error::Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(inner) = cause {
        let message = inner.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = inner.source();
    }
    text
}

/// Result of a request.
pub type Response = Result<Value, RequestError>;

/// Returns a client of this kubeconfig. Calls of one process have the same client, and so the same
/// connections: a preflight checks many components.
async fn client(kubeconfig: Kubeconfig) -> Outcome<Client> {
    let unusable = |error: String| Failure::refused(format!("cannot use the kubeconfig: {error}"));
    let content = serde_json::to_vec(&kubeconfig).map_err(|error| unusable(error.to_string()))?;
    let mut last = CLIENT.lock().await;
    if let Some((_, client)) = last.as_ref().filter(|(former, _)| *former == content) {
        return Ok(client.clone());
    }
    let mut config = kubeconfig::connection(kubeconfig).await?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(WRITE_TIMEOUT);
    // `send` bounds its own retries.
    config.default_retry = false;
    let client = Client::try_from(config).map_err(|error| unusable(chain(&error)))?;
    *last = Some((content, client.clone()));
    Ok(client)
}

impl Cluster {
    /// Returns a client of the job's kubeconfig. Sends no request.
    pub async fn connect<S>(component: &Component<S>) -> Outcome<Self> {
        let client = client(kubeconfig::load()?).await?;
        let (manager, stop) = (component.manager(), CancellationToken::new());
        Ok(Cluster { client, manager, forces_dry_runs: false, stop })
    }

    /// Returns the cluster with another field manager, for dry runs only.
    pub fn for_dry_runs(&self, manager: &str, forces: bool) -> Self {
        let (client, stop) = (self.client.clone(), self.stop.clone());
        Cluster { client, manager: manager.to_owned(), forces_dry_runs: forces, stop }
    }

    /// Stops retries at a cancel.
    pub fn until(self, stop: &CancellationToken) -> Self {
        Cluster { stop: stop.clone(), ..self }
    }

    /// Returns the identity of the cluster: the UID of its namespace `kube-system`.
    pub async fn identity(&self) -> Outcome<String> {
        let namespace = self.namespace("kube-system").await?;
        let uid = namespace.as_ref().and_then(|namespace| metadata(namespace, "uid"));
        uid.map(str::to_owned)
            .ok_or_else(|| Failure::failed("cannot identify the cluster: it has no namespace kube-system; check the kubeconfig"))
    }

    pub async fn namespace(&self, name: &str) -> Outcome<Option<Value>> {
        self.get(&Kind::namespace(), None, name).await
    }

    /// Reads an object. `None` if it does not exist.
    pub async fn get(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Outcome<Option<Value>> {
        let read = self.get_or_error(kind, namespace, name).await;
        read.map_err(|error| {
            error.during(&format!("read {} {}", kind.name(), qualified_name(namespace, name)))
        })
    }

    async fn get_or_error(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, RequestError> {
        let request = Request::new(kind.path(namespace)).get(name, &GetParams::default());
        match self.send(request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.has_code(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads an object by its reference.
    pub async fn live(&self, kind: &Kind, object: &ObjectRef) -> Outcome<Option<Value>> {
        self.get(kind, object.namespace.as_deref(), &object.name).await
    }

    /// Reads an object by its reference, for callers that distinguish errors.
    pub async fn live_or_error(
        &self,
        kind: &Kind,
        object: &ObjectRef,
    ) -> Result<Option<Value>, RequestError> {
        self.get_or_error(kind, object.namespace.as_deref(), &object.name).await
    }

    /// Applies an object without force: a field of another manager is a conflict.
    pub async fn apply(
        &self,
        kind: &Kind,
        reference: &ObjectRef,
        object: &Value,
        dry_run: bool,
    ) -> Response {
        let mut parameters = PatchParams::apply(&self.manager);
        parameters.dry_run = dry_run;
        parameters.force = dry_run && self.forces_dry_runs;
        let request = Request::new(kind.path(reference.namespace.as_deref()));
        self.send(request.patch(&reference.name, &parameters, &Patch::Apply(object))).await
    }

    /// Applies an object with force in a dry run, which stores nothing. Only an adoption needs it.
    pub async fn forced_dry_run(
        &self,
        kind: &Kind,
        reference: &ObjectRef,
        object: &Value,
    ) -> Response {
        let mut parameters = PatchParams::apply(&self.manager).force();
        parameters.dry_run = true;
        let request = Request::new(kind.path(reference.namespace.as_deref()));
        self.send(request.patch(&reference.name, &parameters, &Patch::Apply(object))).await
    }

    /// Replaces the field managers of an object that still has the resource version of `live`.
    pub async fn set_managed_fields(
        &self,
        kind: &Kind,
        reference: &ObjectRef,
        live: &Value,
        managed_fields: &[Value],
    ) -> Response {
        let patch = json!({ "metadata": {
            "uid": live["metadata"]["uid"],
            "resourceVersion": live["metadata"]["resourceVersion"],
            "managedFields": managed_fields,
        } });
        let parameters =
            PatchParams { field_manager: Some(self.manager.clone()), ..PatchParams::default() };
        let request = Request::new(kind.path(reference.namespace.as_deref()));
        self.send(request.patch(&reference.name, &parameters, &Patch::Merge(&patch))).await
    }

    pub async fn create(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        object: &Value,
        dry_run: bool,
    ) -> Response {
        let parameters = PostParams { dry_run, field_manager: Some(self.manager.clone()) };
        let body = serde_json::to_vec(object).map_err(invalid)?;
        self.send(Request::new(kind.path(namespace)).create(&parameters, body)).await
    }

    /// Returns whether RBAC allows the kubeconfig's user an operation.
    pub async fn is_allowed(
        &self,
        verb: &str,
        kind: &Kind,
        namespace: Option<&str>,
    ) -> Outcome<bool> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": {
                "verb": verb,
                "group": kind.group(),
                "resource": kind.plural(),
                "namespace": namespace,
            } },
        });
        let reviewed = self.create(&Kind::access_review(), None, &review, false).await;
        let reviewed = reviewed.map_err(|error| error.during("check the permissions"))?;
        Ok(reviewed["status"]["allowed"] == true)
    }

    /// Replaces an object if its resource version is still that of `object`.
    pub async fn replace(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        object: &Value,
    ) -> Response {
        let parameters = PostParams { dry_run: false, field_manager: Some(self.manager.clone()) };
        let body = serde_json::to_vec(object).map_err(invalid)?;
        self.send(Request::new(kind.path(namespace)).replace(name, &parameters, body)).await
    }

    /// Deletes the object with this UID. The API server deletes its dependents first.
    pub async fn delete(&self, kind: &Kind, object: &ObjectRef, uid: &str) -> Response {
        let condition = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let parameters = DeleteParams::foreground().preconditions(condition);
        let request = Request::new(kind.path(object.namespace.as_deref()));
        self.send(request.delete(&object.name, &parameters)).await
    }

    /// Lists the metadata of at most `limit` objects, from the position `next` of an earlier list.
    /// No content of an object leaves the cluster.
    pub async fn list_metadata(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        limit: u32,
        next: Option<&str>,
    ) -> Response {
        let mut parameters = ListParams::default().limit(limit);
        parameters.continue_token = next.map(str::to_owned);
        self.send(Request::new(kind.path(namespace)).list_metadata(&parameters)).await
    }

    /// Reads a document, such as a list of kinds.
    pub async fn read(&self, path: &str) -> Response {
        self.send(
            http::Request::get(path).body(vec![]).map_err(kube::core::request::Error::BuildRequest),
        )
        .await
    }

    /// Sends a request. Repeats it after a transient error, if a repetition has no other
    /// effect: reads, dry runs, applies, and deletions of one UID.
    pub async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Response {
        let request = request.map_err(invalid)?;
        let is_write =
            request.method() == http::Method::POST || request.method() == http::Method::PUT;
        let has_effect = request.method() != http::Method::GET;
        let limit = if has_effect { WRITE_TIMEOUT } else { READ_TIMEOUT };
        let start = Instant::now();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let response = timeout(limit, self.client.request(request.clone())).await;
            let error = match response {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => RequestError::from(error),
                Err(_) => {
                    RequestError::Connection(format!("no response after {} s", limit.as_secs()))
                }
            };
            let can_repeat = !is_write && error.is_transient() || error.has_code(429);
            let is_last = attempts == ATTEMPTS || start.elapsed() > RETRY_LIMIT;
            if is_last || !can_repeat || self.back_off(attempts).await.is_err() {
                return Err(error);
            }
        }
    }

    /// Waits before the next attempt.
    pub async fn back_off(&self, attempts: u32) -> Outcome<()> {
        tokio::select! {
            () = self.stop.cancelled() => Err(Failure::cancelled()),
            () = sleep(BACK_OFF * 2_u32.pow(attempts.min(ATTEMPTS))) => Ok(()),
        }
    }
}

fn invalid(error: impl std::fmt::Display) -> RequestError {
    RequestError::Connection(format!("cannot build the request: {error}"))
}

fn qualified_name(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}
