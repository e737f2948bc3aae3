//! A proxy between the log and Postgres that can lose data.
#![allow(clippy::unwrap_used, reason = "a helper of tests may fail its test")]
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream, unix::OwnedReadHalf, unix::OwnedWriteHalf},
    sync::watch,
};

/// Fault of the next exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// No fault.
    None = 0,
    /// The request is lost.
    RequestLost = 1,
    /// The request is executed, but its response never arrives.
    ReplyLost = 2,
    /// The caller's connection breaks immediately, and the request arrives later.
    RequestLate = 3,
    /// Half of the request arrives.
    RequestTorn = 4,
    /// The request is lost, nothing more arrives, and the connection stays open.
    SilentBefore = 5,
    /// The request is executed. After that, nothing more arrives, and the connection stays open.
    SilentAfter = 6,
}

/// The proxy, stopped when dropped.
#[derive(Debug)]
pub struct Proxy {
    directory: PathBuf,
    fault: Arc<AtomicU8>,
    hit: Arc<AtomicU32>,
    late_us: Arc<AtomicU64>,
    /// True while the proxy blocks all connections.
    parted: watch::Sender<bool>,
}

impl Proxy {
    /// Starts a proxy for the socket of a database URL.
    pub fn before(url: &str) -> Proxy {
        let directory = std::env::temp_dir().join(format!("p{}", ulid::Ulid::new()));
        std::fs::create_dir_all(&directory).unwrap();
        let host = url.split_once('@').unwrap().1.rsplit_once('/').unwrap().0;
        let directory_of_server = host.trim_end_matches(":5432").replace("%2F", "/");
        let server = PathBuf::from(directory_of_server).join(".s.PGSQL.5432");
        let listener = UnixListener::bind(directory.join(".s.PGSQL.5432")).unwrap();
        let (fault, hit) = (Arc::new(AtomicU8::new(0)), Arc::new(AtomicU32::new(0)));
        let late_us = Arc::new(AtomicU64::new(0));
        let (parted, watched) = watch::channel(false);
        let proxy = Proxy { directory, fault, hit, late_us, parted };
        let (fault, hit) = (proxy.fault.clone(), proxy.hit.clone());
        let late_us = proxy.late_us.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (fault, hit, server) = (fault.clone(), hit.clone(), server.clone());
                let (late_us, mut parted) = (late_us.clone(), watched.clone());
                tokio::spawn(async move {
                    // While the proxy blocks, new connections wait and existing ones are cut.
                    drop(parted.wait_for(|parted| !*parted).await);
                    let cut = async { drop(parted.wait_for(|parted| *parted).await) };
                    let relay = relay(client, server, fault, hit, late_us);
                    tokio::select! { () = relay => {}, () = cut => {} }
                });
            }
        });
        proxy
    }

    /// Blocks or unblocks all connections.
    pub fn set_partitioned(&self, parted: bool) {
        self.parted.send_replace(parted);
    }

    /// URL of the database through this proxy.
    pub fn url(&self, url: &str) -> String {
        let database = url.rsplit_once('/').unwrap().1;
        format!("postgresql://stead@{}/{database}", host(&self.directory))
    }

    /// Sets the fault of the next exchange, on any connection.
    pub fn arm(&self, fault: Fault) {
        self.fault.store(fault as u8, Ordering::SeqCst);
    }

    /// Sets [`Fault::RequestLate`] as the fault of the next exchange, with this delay.
    pub fn arm_late(&self, late: Duration) {
        self.late_us.store(late.as_micros() as u64, Ordering::SeqCst);
        self.arm(Fault::RequestLate);
    }

    /// Number of faults so far.
    pub fn hits(&self) -> u32 {
        self.hit.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn host(directory: &Path) -> String {
    directory.to_str().unwrap().replace('/', "%2F")
}

fn take(fault: &AtomicU8, of: Fault) -> bool {
    fault.compare_exchange(of as u8, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

async fn relay(
    client: UnixStream,
    server: PathBuf,
    fault: Arc<AtomicU8>,
    hit: Arc<AtomicU32>,
    late_us: Arc<AtomicU64>,
) {
    let Ok(server) = UnixStream::connect(server).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let silent = AtomicBool::new(false);
    let up = upstream(from_client, to_server, (fault.clone(), hit.clone(), late_us), &silent);
    let down = downstream(from_server, to_client, (fault, hit), &silent);
    // If the client or the server closes its connection, the proxy closes both connections.
    tokio::select! { () = up => {}, () = down => {} }
}

async fn upstream(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    (fault, hit, late_us): (Arc<AtomicU8>, Arc<AtomicU32>, Arc<AtomicU64>),
    silent: &AtomicBool,
) {
    let mut buffer = vec![0; 1 << 22];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let half = n / 2;
        if take(&fault, Fault::RequestLost) {
            hit.fetch_add(1, Ordering::SeqCst);
            return;
        }
        if take(&fault, Fault::RequestTorn) {
            hit.fetch_add(1, Ordering::SeqCst);
            let _ = to.write_all(&buffer[..half]).await;
            return;
        }
        let carried_out = fault.load(Ordering::SeqCst) == Fault::SilentAfter as u8;
        if take(&fault, Fault::SilentBefore) || take(&fault, Fault::SilentAfter) {
            hit.fetch_add(1, Ordering::SeqCst);
            if carried_out {
                let _ = to.write_all(&buffer[..n]).await;
            }
            silent.store(true, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        if take(&fault, Fault::RequestLate) {
            hit.fetch_add(1, Ordering::SeqCst);
            let request = buffer[..n].to_vec();
            let late = Duration::from_micros(late_us.load(Ordering::SeqCst));
            tokio::spawn(async move {
                tokio::time::sleep(late).await;
                let _ = to.write_all(&request).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            });
            return;
        }
        if to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

async fn downstream(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    (fault, hit): (Arc<AtomicU8>, Arc<AtomicU32>),
    silent: &AtomicBool,
) {
    let mut buffer = vec![0; 1 << 20];
    let mut lost = Vec::new();
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        if silent.load(Ordering::SeqCst) {
            continue;
        }
        if fault.load(Ordering::SeqCst) == Fault::ReplyLost as u8 {
            lost.extend_from_slice(&buffer[..n]);
            // The response is complete when the server is idle and ready for the next query.
            if lost.ends_with(b"Z\0\0\0\x05I") && take(&fault, Fault::ReplyLost) {
                hit.fetch_add(1, Ordering::SeqCst);
                return;
            }
            continue;
        }
        if to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}
