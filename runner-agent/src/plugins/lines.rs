use tokio::io::{AsyncRead, AsyncReadExt};

/// Splits a stream at newlines, and at `limit` bytes where there are none.
pub(crate) struct Lines<R> {
    stream: R,
    buffer: Vec<u8>,
    limit: usize,
    ended: bool,
}

/// One line, without its newline.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub bytes: Vec<u8>,
    /// True if the line was cut at the limit and continues in the next one.
    pub cut: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(stream: R, limit: usize) -> Self {
        Lines { stream, buffer: Vec::new(), limit, ended: false }
    }

    /// Returns whether the stream has ended and every line was returned.
    pub(crate) fn is_done(&self) -> bool {
        self.ended && self.buffer.is_empty()
    }

    /// Returns the next line, or `None` at the end. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Line> {
        let mut scanned = 0;
        loop {
            if let Some(at) = self.buffer[scanned..].iter().position(|byte| *byte == b'\n') {
                let mut bytes: Vec<u8> = self.buffer.drain(..=scanned + at).collect();
                bytes.pop();
                return Some(Line { bytes, cut: false });
            }
            if self.buffer.len() >= self.limit {
                return Some(Line { bytes: self.buffer.drain(..self.limit).collect(), cut: true });
            }
            if self.ended {
                let bytes = std::mem::take(&mut self.buffer);
                return (!bytes.is_empty()).then_some(Line { bytes, cut: false });
            }
            scanned = self.buffer.len();
            let space = (self.limit - scanned).min(16 * 1024);
            // A read error counts as the end of the stream.
            let read = (&mut self.stream).take(space as u64).read_buf(&mut self.buffer).await;
            self.ended = read.is_err() || read.is_ok_and(|length| length == 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(text: &[u8], limit: usize) -> Vec<(String, bool)> {
        let mut lines = Lines::new(text, limit);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await {
            all.push((String::from_utf8(line.bytes).unwrap(), line.cut));
        }
        assert!(lines.is_done());
        all
    }

    #[tokio::test]
    async fn lines_end_at_newlines_at_the_limit_and_at_the_end() {
        let complete = |text: &str| (text.to_owned(), false);
        assert_eq!(
            lines(b"a\n\nbc\nd", 8).await,
            [complete("a"), complete(""), complete("bc"), complete("d")]
        );
        assert_eq!(
            lines(b"abcdefgh", 3).await,
            [("abc".into(), true), ("def".into(), true), complete("gh")]
        );
        assert_eq!(lines(b"", 3).await, []);
    }
}
