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
const LOOK: Duration = Duration::from_millis(200);
/// Timeout of one readiness check.
const PATIENCE: Duration = Duration::from_secs(1);

/// Running load balancer.
pub struct Balancer {
    control: SocketAddr,
    runner: SocketAddr,
    behind: Arc<Behind>,
    _runtime: Runtime,
}

#[derive(Default)]
struct Behind {
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
        let behind = Arc::new(Behind::default());
        let [control, runner] = [0, 1].map(|door| {
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let address = listener.local_addr().unwrap();
            runtime.spawn(forward(listener, door, Arc::clone(&behind)));
            address
        });
        runtime.spawn(watch(Arc::clone(&behind)));
        Balancer { control, runner, behind, _runtime: runtime }
    }

    /// Returns the URL of the Control API.
    pub fn control(&self) -> String {
        format!("http://{}", self.control)
    }

    /// Returns the URL of the Runner API.
    pub fn runner(&self) -> String {
        format!("http://{}", self.runner)
    }

    /// Adds a server.
    pub fn put_before(&self, server: &Server) {
        let address = |url: &str| url.split("://").nth(1).unwrap().parse().unwrap();
        let at = [address(server.control()), address(server.runner())];
        self.behind.servers.lock().unwrap().push(Backend { at, is_ready: true });
    }

    /// Returns the number of ready servers.
    pub fn ready(&self) -> usize {
        self.behind.servers.lock().unwrap().iter().filter(|one| one.is_ready).count()
    }
}

impl Default for Balancer {
    fn default() -> Balancer {
        Balancer::new()
    }
}

impl Behind {
    /// Returns the servers to try, in order: the ready ones in turn, then the others.
    fn order(&self, door: usize) -> Vec<SocketAddr> {
        let mut servers = self.servers.lock().unwrap().clone();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        if !servers.is_empty() {
            let first = turn % servers.len();
            servers.rotate_left(first);
        }
        servers.sort_by_key(|one| !one.is_ready);
        servers.iter().map(|one| one.at[door]).collect()
    }
}

async fn forward(listener: TcpListener, door: usize, behind: Arc<Behind>) {
    while let Ok((mut caller, _)) = listener.accept().await {
        let behind = Arc::clone(&behind);
        tokio::spawn(async move {
            for server in behind.order(door) {
                if let Ok(mut server) = TcpStream::connect(server).await {
                    let _ended = copy_bidirectional(&mut caller, &mut server).await;
                    return;
                }
            }
        });
    }
}

async fn watch(behind: Arc<Behind>) {
    loop {
        let servers = behind.servers.lock().unwrap().clone();
        for (number, server) in servers.iter().enumerate() {
            let is_ready = matches!(timeout(PATIENCE, ask(server.at[0])).await, Ok(Ok(true)));
            behind.servers.lock().unwrap()[number].is_ready = is_ready;
        }
        sleep(LOOK).await;
    }
}

async fn ask(server: SocketAddr) -> std::io::Result<bool> {
    let mut to = TcpStream::connect(server).await?;
    to.write_all(b"GET /readyz HTTP/1.1\r\nhost: balancer\r\nconnection: close\r\n\r\n").await?;
    let mut answer = [0; 12];
    to.read_exact(&mut answer).await?;
    Ok(answer.ends_with(b" 200"))
}
