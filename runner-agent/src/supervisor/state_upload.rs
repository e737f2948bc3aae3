//! Uploads states that a job could not upload, also after the end of the job.
use std::{collections::BTreeMap, convert::Infallible, path::Path, time::Duration};

use reqwest::{Method, header::HeaderName};
use schemas::runner::{EXECUTION, STATE_VERSION, StateHead};
use tokio::time::timeout;
use tracing::{info, warn};

use super::Agent;
use crate::{
    client::{ApiRequest, ServerRejection},
    state::{StateStore, pending_uploads},
};

/// Interval between looks for states to upload.
const INTERVAL: Duration = Duration::from_secs(5);
/// Longest time for one upload.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Uploads states until the agent ends.
pub(super) async fn run(agent: &Agent) -> Infallible {
    // A state that the server rejected is not sent again by this agent.
    let mut rejected = BTreeMap::new();
    loop {
        tokio::time::sleep(INTERVAL).await;
        upload_all(agent, &agent.data.path("state"), &mut rejected).await;
    }
}

async fn upload_all(agent: &Agent, root: &Path, rejected: &mut BTreeMap<String, StateHead>) {
    let pending = pending_uploads(root).unwrap_or_else(|error| {
        warn!(%error, "Cannot look for states to upload");
        Vec::new()
    });
    for store in pending {
        let name = store.component().to_owned();
        let sent = timeout(TIMEOUT, upload(agent, &store, rejected.get(&name))).await;
        match sent {
            Ok(Ok(Some(head))) => info!(component = name, serial = head.serial, "Uploaded a state"),
            Ok(Err(UploadError::Rejected(rejection))) => {
                let (head, error) = *rejection;
                warn!(component = name, serial = head.serial, %error, "The server rejected a state; this host has the only copy");
                rejected.insert(name, head);
            }
            Ok(Err(UploadError::Io(error))) => {
                warn!(component = name, %error, "Cannot upload a state")
            }
            // Nothing to do, or no response: the next round sends it.
            Ok(Ok(None)) | Err(_) => {}
        }
    }
}

enum UploadError {
    Io(std::io::Error),
    Rejected(Box<(StateHead, ServerRejection)>),
}

async fn upload(
    agent: &Agent,
    store: &StateStore,
    rejected: Option<&StateHead>,
) -> Result<Option<StateHead>, UploadError> {
    let Some((upload, ciphertext)) = store.read_stored().map_err(UploadError::Io)? else {
        return Ok(None);
    };
    if rejected == Some(&upload.head) {
        return Ok(None);
    }
    let version = serde_json::to_string(&upload).map_err(|error| UploadError::Io(error.into()))?;
    let path = format!("/runner/v1/state/{}", store.component());
    let mut request = ApiRequest::new(Method::PUT, path)
        .bytes(ciphertext)
        .header(HeaderName::from_static(STATE_VERSION), &version);
    if let Some((_, execution)) = upload.written_by {
        request = request.header(HeaderName::from_static(EXECUTION), &execution.to_string());
    }
    match agent.client.send::<StateHead>(&request).await {
        Ok(_) => {
            store.mark_uploaded(&upload.head).map_err(UploadError::Io)?;
            Ok(Some(upload.head))
        }
        Err(error) => Err(UploadError::Rejected(Box::new((upload.head, error)))),
    }
}
