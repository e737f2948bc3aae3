//! Intercepting proxy between a runner and its server, which records calls and can change
//! responses.
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// Request and response that the proxy forwarded.
#[derive(Debug, Clone, Default)]
pub struct RecordedCall {
    /// Method, such as `PUT` or `POST`.
    pub method: String,
    /// Path with its query.
    pub path: String,
    /// Headers: lower-case name, value.
    pub headers: Vec<(String, String)>,
    /// Body of the request.
    pub body: Vec<u8>,
    /// Original body of the response.
    pub response: Vec<u8>,
}

impl RecordedCall {
    /// Returns a header of the request, or an empty string.
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(header_name, _)| header_name == name);
        found.map_or("", |(_, value)| value)
    }
}

/// Change of a response: a new body, or `None` to keep the original.
type Change = dyn Fn(&RecordedCall) -> Option<Vec<u8>> + Send + Sync;

/// Fate of a call that does not reach the server.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The proxy closes the connection.
    Cut,
    /// The proxy responds with this status.
    Status(u16),
    /// The proxy redirects the call to this URL.
    Redirect(String),
}

/// Returns the fault of a call, or `None` for a call to the server.
type Failing = dyn Fn(&RecordedCall) -> Option<Fault> + Send + Sync;

/// Intercepting proxy, until the test ends.
pub struct InterceptingProxy {
    url: String,
    passed: Arc<Mutex<Vec<RecordedCall>>>,
}

impl InterceptingProxy {
    /// Starts a proxy for this server.
    pub fn before(
        server: &str,
        change: impl Fn(&RecordedCall) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> InterceptingProxy {
        InterceptingProxy::start(server, |_| None, change)
    }

    /// Starts a proxy that closes the connection of some calls before the server gets them.
    pub fn cutting(
        server: &str,
        cuts: impl Fn(&RecordedCall) -> bool + Send + Sync + 'static,
    ) -> InterceptingProxy {
        InterceptingProxy::failing(server, move |call| cuts(call).then_some(Fault::Cut))
    }

    /// Starts a proxy that itself answers some calls.
    pub fn failing(
        server: &str,
        fault: impl Fn(&RecordedCall) -> Option<Fault> + Send + Sync + 'static,
    ) -> InterceptingProxy {
        InterceptingProxy::start(server, fault, |_| None)
    }

    fn start(
        server: &str,
        fault: impl Fn(&RecordedCall) -> Option<Fault> + Send + Sync + 'static,
        change: impl Fn(&RecordedCall) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> InterceptingProxy {
        let host = server.trim_start_matches("http://").trim_end_matches('/').to_string();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let passed = Arc::<Mutex<Vec<RecordedCall>>>::default();
        let interception = Arc::new((fault, change));
        let recorded = Arc::clone(&passed);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (host, recorded, interception) =
                    (host.clone(), Arc::clone(&recorded), Arc::clone(&interception));
                // The runner repeats a call whose connection breaks.
                thread::spawn(move || {
                    let (fault, change) = interception.as_ref();
                    pass(stream, &host, &recorded, (fault, change))
                });
            }
        });
        InterceptingProxy { url, passed }
    }

    /// Returns the URL for the runner.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the host and port.
    pub fn host(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Returns the number of calls that match.
    pub fn count(&self, matches: impl Fn(&RecordedCall) -> bool) -> usize {
        let all = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|call| matches(call)).count()
    }

    /// Returns the calls to paths with this suffix, oldest first.
    pub fn calls_to(&self, end: &str) -> Vec<RecordedCall> {
        let all = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|call| call.path.ends_with(end)).cloned().collect()
    }
}

fn pass(
    client: TcpStream,
    host: &str,
    recorded: &Mutex<Vec<RecordedCall>>,
    (fault, change): (&Failing, &Change),
) -> std::io::Result<()> {
    let mut client = client;
    let mut from = BufReader::new(client.try_clone()?);
    let mut call = read_call(&mut from)?;
    let head = match fault(&call) {
        Some(Fault::Cut) => return Ok(()),
        Some(Fault::Status(status)) => Some(format!("{status} Fault")),
        Some(Fault::Redirect(to)) => Some(format!("307 Fault\r\nLocation: {to}")),
        None => None,
    };
    if let Some(head) = head {
        let rest = "Content-Length: 0\r\nConnection: close\r\n\r\n";
        return client.write_all(format!("HTTP/1.1 {head}\r\n{rest}").as_bytes());
    }
    // HTTP/1.0 makes the response end with the connection.
    let mut text = format!("{} {} HTTP/1.0\r\nConnection: close\r\n", call.method, call.path);
    for (name, value) in &call.headers {
        if !["connection", "transfer-encoding", "content-length"].contains(&name.as_str()) {
            text += &format!("{name}: {value}\r\n");
        }
    }
    text += &format!("Content-Length: {}\r\n\r\n", call.body.len());
    let mut server = TcpStream::connect(host)?;
    server.write_all(text.as_bytes())?;
    server.write_all(&call.body)?;
    let mut server_reader = BufReader::new(server);
    let (status, headers) = self::head(&mut server_reader)?;
    server_reader.read_to_end(&mut call.response)?;
    let body = change(&call).unwrap_or_else(|| call.response.clone());
    let mut text = format!(
        "HTTP/1.1{}\r\n",
        status.trim_start_matches("HTTP/1.0").trim_start_matches("HTTP/1.1")
    );
    let has_no_body = call.method == "HEAD";
    for (name, value) in &headers {
        let is_replaced = ["connection", "transfer-encoding"].contains(&name.as_str());
        if !is_replaced && (has_no_body || name != "content-length") {
            text += &format!("{name}: {value}\r\n");
        }
    }
    if !has_no_body {
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    recorded.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    client.write_all(format!("{text}Connection: close\r\n\r\n").as_bytes())?;
    client.write_all(&body)
}

/// Reads a request with its body.
pub(crate) fn read_call(from: &mut BufReader<TcpStream>) -> std::io::Result<RecordedCall> {
    let (first, headers) = head(from)?;
    let mut parts = first.split(' ').map(str::to_string);
    let (method, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut call = RecordedCall { method, path, headers, ..RecordedCall::default() };
    call.body = match call.header("transfer-encoding") {
        "chunked" => chunks(from)?,
        _ => {
            let mut body = vec![0; call.header("content-length").parse().unwrap_or(0)];
            from.read_exact(&mut body)?;
            body
        }
    };
    Ok(call)
}

/// First line and headers.
type Head = (String, Vec<(String, String)>);

fn head(from: &mut impl std::io::BufRead) -> std::io::Result<Head> {
    let (mut first, mut headers) = (String::new(), vec![]);
    from.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_string()));
    }
    Ok((first.trim_end().to_string(), headers))
}

/// Reads a chunked body.
fn chunks(from: &mut BufReader<TcpStream>) -> std::io::Result<Vec<u8>> {
    let mut body = vec![];
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
        let mut chunk = vec![0; length + 2];
        from.read_exact(&mut chunk)?;
        if length == 0 {
            return Ok(body);
        }
        chunk.truncate(length);
        body.extend(chunk);
    }
}
