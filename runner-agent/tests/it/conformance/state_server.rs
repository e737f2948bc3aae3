//! Stand-in for the server's store of states. It orders versions as the server does, and can reject
//! or lose uploads.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use schemas::{
    manifest::StateVersion,
    problem::Problem,
    runner::{StateHead, StateUpload},
};

/// Response to uploads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uploads {
    Accept,
    /// Rejects each version, because a later execution has begun.
    Reject,
    /// Ends the connection without a response, and stores nothing.
    Lose,
    /// Ends the connection without a response, and stores the version.
    StoreAndLose,
    /// The same for the first version, and then runs a job on the component.
    StoreAndHold,
    /// Sends the response of an overloaded server or of a proxy.
    Respond(u16, &'static str),
}

/// Response to reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    Answer,
    /// Sends a response with this status and code. An empty code is a page of a proxy.
    Respond(u16, &'static str),
    /// Sends one byte each second.
    Drip,
}

/// Handle of the stand-in, which runs for the rest of the process.
#[derive(Clone)]
pub struct StateServer {
    pub url: String,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    uploads: Uploads,
    reads: Reads,
    versions: Vec<(StateHead, Vec<u8>)>,
    /// Newest version in the log.
    recorded: Option<StateVersion>,
    /// Job that runs on the component.
    held_by: Option<&'static str>,
    /// Called for each upload, before the response.
    on_upload: Option<Box<dyn Fn() + Send>>,
}

impl StateServer {
    pub fn start(uploads: Uploads) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (reads, versions) = (Reads::Answer, Vec::new());
        let (recorded, held_by, on_upload) = (None, None, None);
        let inner = Inner { uploads, reads, versions, recorded, held_by, on_upload };
        let server = StateServer { url, inner: Arc::new(Mutex::new(inner)) };
        let responds = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that went away concerns only its test.
                let _ended = responds.respond(stream.unwrap());
            }
        });
        server
    }

    pub fn set_uploads(&self, uploads: Uploads) {
        self.inner.lock().unwrap().uploads = uploads;
    }

    pub fn set_reads(&self, reads: Reads) {
        self.inner.lock().unwrap().reads = reads;
    }

    /// Names this version in the log.
    pub fn record(&self, version: Option<StateVersion>) {
        self.inner.lock().unwrap().recorded = version;
    }

    /// Runs this job on the component.
    pub fn hold(&self, job: Option<&'static str>) {
        self.inner.lock().unwrap().held_by = job;
    }

    pub fn on_upload(&self, call: impl Fn() + Send + 'static) {
        self.inner.lock().unwrap().on_upload = Some(Box::new(call));
    }

    /// Loses all versions but the first ones.
    pub fn restore(&self, kept: usize) {
        self.inner.lock().unwrap().versions.truncate(kept);
    }

    /// Changes the newest version as a hostile server could.
    pub fn change_newest(&self, change: impl Fn(&mut StateHead, &mut Vec<u8>)) {
        let mut inner = self.inner.lock().unwrap();
        let (head, ciphertext) = inner.versions.last_mut().unwrap();
        change(head, ciphertext);
    }

    pub fn versions(&self) -> Vec<(String, u64)> {
        let inner = self.inner.lock().unwrap();
        inner.versions.iter().map(|(head, _)| (head.lineage.clone(), head.serial)).collect()
    }

    pub fn newest(&self) -> Option<StateHead> {
        self.inner.lock().unwrap().versions.last().map(|(head, _)| head.clone())
    }

    fn respond(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let (mut first, mut version, mut known, mut length) =
            (String::new(), String::new(), String::new(), 0);
        reader.read_line(&mut first)?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim().split_once(": ") else { break };
            match name {
                "state-version" => version = value.to_owned(),
                "if-none-match" => known = value.trim_matches('"').to_owned(),
                "content-length" => length = value.parse().unwrap(),
                _ => {}
            }
        }
        let mut body = Vec::new();
        reader.take(length).read_to_end(&mut body)?;
        let mut inner = self.inner.lock().unwrap();
        let response = match first.starts_with("PUT") {
            true => inner.put(serde_json::from_str(&version).unwrap(), body),
            false => inner.get(&known),
        };
        let recorded =
            inner.recorded.as_ref().map(|version| serde_json::to_string(version).unwrap());
        let drips = inner.reads == Reads::Drip;
        drop(inner);
        let Some((status, head, body)) = response else { return Ok(()) };
        let recorded = recorded.filter(|_| matches!(status, 200 | 204 | 304));
        let recorded =
            recorded.map(|json| format!("state-recorded: {json}\r\n")).unwrap_or_default();
        let head = head.map(|head| serde_json::to_string(&head).unwrap());
        let head = head.map(|head| format!("state-version: {head}\r\n")).unwrap_or_default();
        let length = match status {
            204 | 304 => String::new(),
            _ => format!("content-length: {}\r\n", body.len()),
        };
        write!(stream, "HTTP/1.1 {status} X\r\n{length}{head}{recorded}connection: close\r\n\r\n")?;
        if drips {
            for byte in body {
                stream.write_all(&[byte])?;
                std::thread::sleep(Duration::from_secs(1));
            }
            return Ok(());
        }
        stream.write_all(&body)
    }
}

type Response = Option<(u16, Option<StateHead>, Vec<u8>)>;

impl Inner {
    fn put(&mut self, upload: StateUpload, body: Vec<u8>) -> Response {
        if let Some(call) = &self.on_upload {
            call();
        }
        match self.uploads {
            Uploads::Lose => None,
            Uploads::Reject => rejected(412, "state_fenced"),
            Uploads::Respond(status, code) => rejected(status, code),
            Uploads::Accept => self.store(upload, body),
            Uploads::StoreAndLose => {
                self.store(upload, body);
                None
            }
            Uploads::StoreAndHold if self.held_by.is_none() => {
                self.store(upload, body);
                self.held_by = Some("job_1");
                None
            }
            Uploads::StoreAndHold => self.store(upload, body),
        }
    }

    fn store(&mut self, upload: StateUpload, body: Vec<u8>) -> Response {
        if let Some(job) = self.held_by.filter(|_| upload.is_decided) {
            let problem = Problem::new(409, "state_in_use", "In use", "").with("job", job);
            return Some((409, None, serde_json::to_vec(&problem).unwrap()));
        }
        let head = upload.head;
        if let Some((newest, _)) = self.versions.last() {
            let is_same = (&head.lineage, head.serial) == (&newest.lineage, newest.serial);
            let is_fenced = match upload.is_decided {
                true => head.fence != newest.fence,
                false => head.fence < newest.fence,
            };
            if is_fenced {
                return rejected(412, "state_fenced");
            }
            if is_same && head.digest == newest.digest {
                return Some((200, None, serde_json::to_vec(newest).unwrap()));
            }
            let continues = match head.lineage == newest.lineage {
                true => head.serial > newest.serial,
                false => newest.is_empty || upload.is_decided,
            };
            if !continues {
                return rejected(409, "state_conflict");
            }
        }
        let response = serde_json::to_vec(&head).unwrap();
        self.versions.push((head, body));
        Some((200, None, response))
    }

    fn get(&self, known: &str) -> Response {
        if let Reads::Respond(status, code) = self.reads {
            return rejected(status, code);
        }
        match self.versions.last() {
            None => Some((204, None, Vec::new())),
            Some((head, _)) if head.digest == known => Some((304, Some(head.clone()), Vec::new())),
            Some((head, body)) => Some((200, Some(head.clone()), body.clone())),
        }
    }
}

/// Returns a problem with this code, or the page of a proxy if it is empty.
fn rejected(status: u16, code: &str) -> Response {
    let problem = Problem::new(status, code, "Rejected", "another host has written");
    let body = match code.is_empty() {
        true => b"<html>not here</html>".to_vec(),
        false => serde_json::to_vec(&problem).unwrap(),
    };
    Some((status, None, body))
}
