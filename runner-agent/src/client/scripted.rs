//! Small HTTP server that returns scripted responses, for tests of failures.
use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::Client;
use crate::tls::Trust;

/// Starts a server that responds to each request with the next of these responses, and records the
/// requests. An empty response closes the connection.
pub(crate) async fn scripted(responses: Vec<&'static str>) -> (Client, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    tokio::spawn(async move {
        for response in responses {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 65536];
            let read = stream.read(&mut request).await.unwrap();
            recorded.lock().unwrap().push(String::from_utf8_lossy(&request[..read]).into_owned());
            if response.is_empty() {
                continue; // the connection is lost
            }
            let (head, body) = response.split_once('|').unwrap();
            let length = body.len();
            let text = format!(
                "HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    });
    (Client::new(&base, &Trust::Public).unwrap(), requests)
}
