//! Streamed responses: lines and server-sent events.
use async_stream::try_stream;
use bytes::{Buf, BytesMut};
use futures::{Stream, StreamExt};
use reqwest::Response;

use super::{ClientError, innermost};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerEvent {
    /// Value of `Last-Event-ID` that continues after this event.
    pub id: Option<String>,
    /// Type of the event. The default is `message`.
    pub event: String,
    pub data: String,
}

/// Returns the lines of a response as they arrive, without line ends.
pub fn lines(answer: Response) -> impl Stream<Item = Result<String, ClientError>> {
    let server = answer.url().origin().ascii_serialization();
    try_stream! {
        let mut chunks = answer.bytes_stream();
        let mut buffer = BytesMut::new();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|e| ClientError::Unreachable {
                server: server.clone(),
                reason: innermost(&e),
            })?;
            buffer.extend_from_slice(&chunk);
            while let Some(end) = buffer.iter().position(|b| *b == b'\n') {
                let line = buffer.split_to(end);
                buffer.advance(1);
                yield String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            }
        }
        if !buffer.is_empty() {
            yield String::from_utf8_lossy(&buffer).into_owned();
        }
    }
}

/// Returns the server-sent events of a response as they arrive. Skips comments, which only keep the
/// connection open.
pub fn server_events(answer: Response) -> impl Stream<Item = Result<ServerEvent, ClientError>> {
    try_stream! {
        let lines = lines(answer);
        futures::pin_mut!(lines);
        let mut building = Building::default();
        while let Some(line) = lines.next().await {
            if let Some(event) = building.line(&line?) {
                yield event;
            }
        }
    }
}

#[derive(Default)]
struct Building {
    event: ServerEvent,
    data: Vec<String>,
}

impl Building {
    /// Adds a line. Returns the event that an empty line completes.
    fn line(&mut self, line: &str) -> Option<ServerEvent> {
        if line.is_empty() {
            let ended = std::mem::take(self);
            let mut event = ended.event;
            event.data = ended.data.join("\n");
            if event.event.is_empty() {
                event.event = "message".into();
            }
            return (!ended.data.is_empty()).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match field {
            "id" => self.event.id = Some(value),
            "event" => self.event.event = value,
            "data" => self.data.push(value),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_ends_at_an_empty_line_and_comments_are_ignored() {
        let mut building = Building::default();
        let mut events = Vec::new();
        for line in
            ": hello\n\nid: 7\nevent: change\ndata: {\"a\":1}\ndata:more\n\ndata: x\n\n".lines()
        {
            events.extend(building.line(line));
        }
        assert_eq!(events.len(), 2);
        assert_eq!(events[0].id.as_deref(), Some("7"));
        assert_eq!(
            (events[0].event.as_str(), events[0].data.as_str()),
            ("change", "{\"a\":1}\nmore")
        );
        assert_eq!((events[1].event.as_str(), events[1].data.as_str()), ("message", "x"));
    }
}
