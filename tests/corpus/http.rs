//! HTTP of the proxy: requests of clients, and its own questions to the API.
use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
};

use serde_json::Value;

/// Request of an HTTP/1.1 client.
pub(crate) struct Request {
    pub(crate) line: String,
    /// Headers except those of the connection and of its credentials.
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn read(stream: &mut impl BufRead) -> Option<Request> {
        const OWN: [&str; 8] = [
            "accept-encoding",
            "authorization",
            "connection",
            "content-length",
            "expect",
            "host",
            "transfer-encoding",
            "upgrade",
        ];
        let line = text_line(stream)?;
        let (mut headers, mut length, mut is_chunked) = (vec![], 0, false);
        loop {
            let header = text_line(stream)?;
            if header.is_empty() {
                break;
            }
            let (name, value) = header.split_once(':')?;
            let (name, value) = (name.to_ascii_lowercase(), value.trim());
            match name.as_str() {
                "content-length" => length = value.parse().ok()?,
                "transfer-encoding" => is_chunked = value.eq_ignore_ascii_case("chunked"),
                _ => {}
            }
            if !OWN.contains(&name.as_str()) {
                headers.push(header);
            }
        }
        let mut body = vec![];
        if is_chunked {
            while let Ok(size) = usize::from_str_radix(&text_line(stream)?, 16) {
                let start = body.len();
                body.resize(start + size, 0);
                stream.read_exact(&mut body[start..]).ok()?;
                text_line(stream)?;
                if size == 0 {
                    break;
                }
            }
        } else {
            body.resize(length, 0);
            stream.read_exact(&mut body).ok()?;
        }
        Some(Request { line, headers, body })
    }
}

fn text_line(stream: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    let read = stream.by_ref().take(1 << 16).read_line(&mut line).ok()?;
    (read > 0).then(|| line.trim_end().to_owned())
}

/// Returns the JSON response for a path of the API behind a socket, unless there is none.
pub(crate) fn get(socket: &Path, path: &str) -> Option<Value> {
    let mut server = UnixStream::connect(socket).ok()?;
    // A response of HTTP/1.0 has no chunks.
    let accept = "Accept: application/json";
    write!(server, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n{accept}\r\n\r\n").ok()?;
    let mut server = BufReader::new(server);
    while !text_line(&mut server)?.is_empty() {}
    serde_json::from_reader(server).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_keeps_its_headers_without_those_of_the_connection() {
        let text = "POST /api HTTP/1.1\r\nHost: a\r\nAuthorization: b\r\nAccept: c\r\n\
                    Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        let request = Request::read(&mut BufReader::new(text.as_bytes())).unwrap();
        assert_eq!(
            (request.line.as_str(), request.body.as_slice()),
            ("POST /api HTTP/1.1", &b"abc"[..])
        );
        assert_eq!(request.headers, ["Accept: c"]);
        let text = "PUT / HTTP/1.1\r\nContent-Length: 2\r\n\r\nabc";
        assert_eq!(Request::read(&mut BufReader::new(text.as_bytes())).unwrap().body, b"ab");
    }
}
