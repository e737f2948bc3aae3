//! Body of an uploaded state.
use std::time::Duration;

use axum::{
    extract::Request,
    http::{HeaderMap, header::CONTENT_LENGTH},
};
use futures::StreamExt as _;
use schemas::runner::STATE_CIPHERTEXT_BYTES;
use tokio::time::{Instant, timeout_at};

use super::busy;
use crate::{
    problem::{Code, Problem},
    state_versions::{LOWEST_RATE, Transfer},
};

/// Longest pause between two parts of a body, and time beyond that of the lowest rate.
const PATIENCE: Duration = Duration::from_secs(30);
/// Size of the buffer for the first bytes of a body.
const FIRST_BYTES: u64 = 64 << 10;

/// Returns the announced length of the body.
pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok())
}

pub(super) fn too_large() -> Problem {
    let detail = "cannot store the state: it is larger than 100 MiB; split the component";
    Problem::new(Code::TooLarge, detail)
}

/// Reads the body into one buffer, which grows as the body arrives. A body that is incomplete or too
/// slow can be sent again.
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
    let too_slow = || incomplete("arrives too slowly".into());
    let (mut bytes, mut capacity) = (Vec::new(), 0);
    let most = length.unwrap_or(STATE_CIPHERTEXT_BYTES).min(STATE_CIPHERTEXT_BYTES);
    let begun = Instant::now();
    let mut body = request.into_body().into_data_stream();
    loop {
        // All bytes count, not only those of the last seconds: a small state may take longer.
        let in_time = begun + PATIENCE + Duration::from_secs(bytes.len() as u64 / LOWEST_RATE);
        let until = in_time.min(Instant::now() + PATIENCE);
        let Some(part) = timeout_at(until, body.next()).await.map_err(|_| too_slow())? else {
            return Ok(bytes);
        };
        let part = part.map_err(|error| incomplete(format!("is incomplete: {error}")))?;
        let needed = (bytes.len() + part.len()) as u64;
        if needed > STATE_CIPHERTEXT_BYTES {
            return Err(too_large());
        }
        if needed > capacity {
            capacity = needed.max(FIRST_BYTES).max((2 * capacity).min(most));
            if !transfer.grow(capacity) {
                return Err(busy());
            }
            let more = usize::try_from(capacity).unwrap_or(usize::MAX) - bytes.len();
            bytes.reserve_exact(more);
        }
        bytes.extend_from_slice(&part);
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
        let transfer = Uploads::default().upload(InstallId(Ulid::new())).unwrap();
        let begun = Instant::now();
        let part = stream::iter([Ok::<_, std::io::Error>(vec![1_u8])]);
        let body = Body::from_stream(part.chain(stream::pending()));
        let problem = read(Request::new(body), Some(2), &transfer).await.unwrap_err();
        assert_eq!(problem.code, Code::BodyIncomplete);
        assert!(problem.detail.contains("too slowly"), "{}", problem.detail);
        assert_eq!(begun.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_below_the_lowest_rate_ends_and_one_above_it_does_not() {
        let transfer = Uploads::default().upload(InstallId(Ulid::new())).unwrap();
        let body = |bytes: usize, number| {
            let parts = stream::iter(0..number).then(move |_| async move {
                tokio::time::sleep(Duration::from_secs(10)).await;
                Ok::<_, std::io::Error>(vec![1_u8; bytes])
            });
            Request::new(Body::from_stream(parts))
        };
        // An announced length takes no memory, and gives no more time.
        let slow = read(body(1 << 20, 20), Some(100 << 20), &transfer).await.unwrap_err();
        assert!(slow.detail.contains("too slowly"), "{}", slow.detail);
        assert_eq!(read(body(2 << 20, 20), None, &transfer).await.unwrap().len(), 40 << 20);
    }

    #[tokio::test]
    async fn a_broken_body_can_be_sent_again_and_a_complete_one_is_read() {
        let transfer = Uploads::default().upload(InstallId(Ulid::new())).unwrap();
        let parts = [Ok(vec![1_u8]), Err(std::io::Error::other("cut"))];
        let body = Body::from_stream(stream::iter(parts));
        let problem = read(Request::new(body), Some(2), &transfer).await.unwrap_err();
        assert_eq!(problem.code, Code::BodyIncomplete);
        let body = Body::from("state");
        assert_eq!(read(Request::new(body), None, &transfer).await, Ok(b"state".to_vec()));
    }
}
