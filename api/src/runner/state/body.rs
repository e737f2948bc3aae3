//! Body of an uploaded state.
use axum::{
    extract::Request,
    http::{HeaderMap, header::CONTENT_LENGTH},
};
use futures::StreamExt as _;
use schemas::runner::STATE_CIPHERTEXT_BYTES;
use tokio::time::timeout_at;

use crate::{
    problem::{Code, Problem},
    state_versions::Transfer,
};

/// Returns the announced length of the body.
pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok())
}

pub(super) fn too_large() -> Problem {
    let detail = "cannot store the state: it is larger than 100 MiB; split the component";
    Problem::new(Code::TooLarge, detail)
}

/// Reads the body into one buffer. A body that is incomplete or too slow can be sent again.
pub(super) async fn read(
    request: Request,
    length: Option<u64>,
    transfer: &Transfer,
) -> Result<Vec<u8>, Problem> {
    let incomplete = |why: String| {
        let detail =
            format!("cannot store the state: the request body {why}; send the state again");
        Problem::new(Code::BodyIncomplete, detail).retry_after(1)
    };
    let mut bytes = Vec::with_capacity(usize::try_from(length.unwrap_or(0)).unwrap_or(0));
    let mut body = request.into_body().into_data_stream();
    let read = async {
        while let Some(part) = body.next().await {
            let part = part.map_err(|error| incomplete(format!("is incomplete: {error}")))?;
            if (bytes.len() + part.len()) as u64 > STATE_CIPHERTEXT_BYTES {
                return Err(too_large());
            }
            bytes.extend_from_slice(&part);
        }
        Ok(())
    };
    match timeout_at(transfer.deadline(), read).await {
        Ok(read) => read.map(|()| bytes),
        Err(_too_slow) => Err(incomplete("arrives too slowly".into())),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use domain::ids::InstallId;
    use futures::stream;
    use tokio::time::Instant;
    use ulid::Ulid;

    use super::*;
    use crate::state_versions::Uploads;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stands_still_can_be_sent_again() {
        let transfer = Uploads::default().upload(InstallId(Ulid::new()), 1 << 20).unwrap();
        let begun = Instant::now();
        let part = stream::iter([Ok::<_, std::io::Error>(vec![1_u8])]);
        let body = Body::from_stream(part.chain(stream::pending()));
        let problem = read(Request::new(body), Some(2), &transfer).await.unwrap_err();
        assert_eq!(problem.code, Code::BodyIncomplete);
        assert!(problem.detail.contains("too slowly"), "{}", problem.detail);
        assert_eq!(begun.elapsed().as_secs(), 38);
    }

    #[tokio::test]
    async fn a_broken_body_can_be_sent_again_and_a_complete_one_is_read() {
        let transfer = Uploads::default().upload(InstallId(Ulid::new()), 1).unwrap();
        let parts = [Ok(vec![1_u8]), Err(std::io::Error::other("cut"))];
        let body = Body::from_stream(stream::iter(parts));
        let problem = read(Request::new(body), Some(2), &transfer).await.unwrap_err();
        assert_eq!(problem.code, Code::BodyIncomplete);
        let body = Body::from("state");
        assert_eq!(read(Request::new(body), None, &transfer).await, Ok(b"state".to_vec()));
    }
}
