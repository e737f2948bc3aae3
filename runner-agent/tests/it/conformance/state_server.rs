//! Stand-in for the server's store of states: it accepts or rejects every version and forgets it.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
};

/// Response to uploads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uploads {
    Accept,
    Reject,
    /// Ends the connection without a response.
    Lose,
}

/// Starts a server for the rest of the process, and returns its address.
pub fn start(uploads: Uploads) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that went away concerns only its test.
            let _ended = respond(stream.unwrap(), uploads);
        }
    });
    address
}

fn respond(mut stream: TcpStream, uploads: Uploads) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut first, mut version, mut length) = (String::new(), String::new(), 0);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        match name {
            "state-version" => version = value.to_owned(),
            "content-length" => length = value.parse().unwrap(),
            _ => {}
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
    let (status, body) = match (first.starts_with("PUT"), uploads) {
        (true, Uploads::Accept) => ("200 OK", version),
        (true, Uploads::Reject) => ("412 Precondition Failed", problem()),
        (true, Uploads::Lose) => return Ok(()),
        (false, _) => ("204 No Content", String::new()),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

fn problem() -> String {
    let problem =
        schemas::problem::Problem::new(412, "fenced", "Fenced", "another host has written");
    serde_json::to_string(&problem).unwrap()
}
