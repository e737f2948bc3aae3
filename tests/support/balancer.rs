//! Load balancer: one address for several servers. Each connection goes to the next server that
//! reports ready.
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    time::{sleep, timeout},
};

use crate::Server;

/// Interval of the readiness checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Timeout of one readiness check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// Running load balancer.
pub struct Balancer {
    control: SocketAddr,
    runner: SocketAddr,
    backends: Arc<Backends>,
    _runtime: Runtime,
}

#[derive(Default)]
struct Backends {
    servers: Mutex<Vec<Backend>>,
    turn: AtomicUsize,
}

#[derive(Clone, Copy)]
struct Backend {
    /// Addresses for the Control API and the Runner API.
    at: [SocketAddr; 2],
    is_ready: bool,
}

impl Balancer {
    /// Listens on free loopback ports, without servers yet.
    pub fn new() -> Balancer {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let backends = Arc::new(Backends::default());
        let [control, runner] = [0, 1].map(|listener_index| {
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let address = listener.local_addr().unwrap();
            runtime.spawn(forward(listener, listener_index, Arc::clone(&backends)));
            address
        });
        runtime.spawn(watch(Arc::clone(&backends)));
        Balancer { control, runner, backends, _runtime: runtime }
    }

    /// Returns the URL of the Control API.
    pub fn control(&self) -> String {
        format!("http://{}", self.control)
    }

    /// Returns the URL of the Runner API.
    pub fn runner(&self) -> String {
        format!("http://{}", self.runner)
    }

    /// Adds a server, which counts as ready until its first readiness check.
    pub fn add(&self, server: &Server) {
        let address = |url: &str| url.split("://").nth(1).unwrap().parse().unwrap();
        let at = [address(server.control()), address(server.runner())];
        self.backends.servers.lock().unwrap().push(Backend { at, is_ready: true });
    }

    /// Returns the number of ready servers.
    pub fn ready(&self) -> usize {
        self.backends.servers.lock().unwrap().iter().filter(|one| one.is_ready).count()
    }
}

impl Default for Balancer {
    fn default() -> Balancer {
        Balancer::new()
    }
}

impl Backends {
    /// Returns the servers to try, in order: the ready ones in turn, then the others.
    fn order(&self, listener_index: usize) -> Vec<SocketAddr> {
        let mut servers = self.servers.lock().unwrap().clone();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        if !servers.is_empty() {
            let first = turn % servers.len();
            servers.rotate_left(first);
        }
        servers.sort_by_key(|one| !one.is_ready);
        servers.iter().map(|one| one.at[listener_index]).collect()
    }
}

async fn forward(listener: TcpListener, listener_index: usize, backends: Arc<Backends>) {
    while let Ok((mut caller, _)) = listener.accept().await {
        let backends = Arc::clone(&backends);
        tokio::spawn(async move {
            for server in backends.order(listener_index) {
                if let Ok(mut server) = TcpStream::connect(server).await {
                    let _ended = copy_bidirectional(&mut caller, &mut server).await;
                    return;
                }
            }
        });
    }
}

async fn watch(backends: Arc<Backends>) {
    loop {
        let servers = backends.servers.lock().unwrap().clone();
        for (number, server) in servers.iter().enumerate() {
            let is_ready =
                matches!(timeout(CHECK_TIMEOUT, check_ready(server.at[0])).await, Ok(Ok(true)));
            backends.servers.lock().unwrap()[number].is_ready = is_ready;
        }
        sleep(CHECK_INTERVAL).await;
    }
}

async fn check_ready(server: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(server).await?;
    stream
        .write_all(b"GET /readyz HTTP/1.1\r\nhost: balancer\r\nconnection: close\r\n\r\n")
        .await?;
    let mut response = [0; 12];
    stream.read_exact(&mut response).await?;
    Ok(response.ends_with(b" 200"))
}
