//! Where it happens: two servers behind one address, each with a way of its own to one Postgres on a disk of its own;
//! a customer's runner; and what of the world each of them sees.
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use event_log::{
    Archives, Source,
    testing::{Cluster, Disk, Settings, proxy::Proxy},
};
use sqlx::PgPool;
use tempfile::TempDir;
use tests::{Balancer, Builder, Customer, Runner, Server, notes_files, program, stdout_of, until};
use tokio::runtime::Runtime;

use crate::command_line::enterable;

/// How much room the database has while it is not full.
const ROOM_MB: u32 = 4_096;
/// How long an effect takes.
const PACE_MS: &str = "120";

/// Everything that runs. What is dropped first is stopped first.
pub struct Place {
    pub runner: Runner,
    _builder: Builder,
    pub servers: Vec<Server>,
    pub balancer: Balancer,
    pub proxies: Vec<Proxy>,
    /// What clock each server sees, where it can be another one.
    pub clocks: Option<Vec<PathBuf>>,
    postgres: Postgres,
    pub runtime: Runtime,
    pub dir: TempDir,
}

/// The one Postgres.
struct Postgres {
    cluster: Cluster,
    settings: Settings,
    disk: Option<Disk>,
}

impl Place {
    /// Start all of it; an install is there and its runner enrolled. `planted` is a mistake that the servers make.
    pub fn new(runtime: Runtime, planted: Option<&str>) -> Place {
        let dir = tempfile::Builder::new().prefix("stead-nemesis-").tempdir().unwrap();
        enterable(dir.path());
        let postgres = Postgres::start(&runtime, &dir.path().join("disk"));
        let direct = postgres.prepare(&runtime);
        let proxies: Vec<_> =
            runtime.block_on(async { (0..2).map(|_| Proxy::before(&direct)).collect() });
        let (balancer, library) = (Balancer::new(), faketime());
        let clocks: Vec<_> =
            (0..2).map(|number| dir.path().join(format!("clock-{number}"))).collect();
        let mut servers: Vec<Server> = Vec::new();
        for (proxy, clock) in proxies.iter().zip(&clocks) {
            let owner = proxy.url(&direct);
            let application = owner.replacen("//stead@", "//stead_app@", 1);
            let mut environment = vec![("DATABASE_OWNER_URL", &*owner)];
            environment.extend(planted.map(|bug| ("STEAD_PLANTED", bug)));
            let clock_file = clock.to_str().unwrap();
            if let Some(library) = &library {
                fs::write(clock, "+0").unwrap();
                environment.extend([
                    ("LD_PRELOAD", library.as_str()),
                    ("FAKETIME_TIMESTAMP_FILE", clock_file),
                    ("FAKETIME_CACHE_DURATION", "1"),
                    // How long something takes is not what a clock is set to.
                    ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
                ]);
            }
            let server = Server::beside(servers.first(), &application, &[], &environment);
            balancer.put_before(&server);
            servers.push(server);
        }
        let (builder, runner) = customer(&servers[0], &balancer);
        let clocks = library.map(|_| clocks);
        Place {
            runner,
            _builder: builder,
            servers,
            balancer,
            proxies,
            clocks,
            postgres,
            runtime,
            dir,
        }
    }

    /// Past everything that can be broken.
    fn pool(&self) -> PgPool {
        let url = self.postgres.cluster.url("stead");
        self.runtime.block_on(event_log::connect(&url, 4)).unwrap()
    }

    /// The log as whoever has the servers' keys reads it.
    pub fn source(&self) -> Source {
        let keys = api::keys::wrapping::kept(&self.servers[0].data().join("keys")).unwrap();
        Source::new(&self.pool(), &Archives::default(), &keys)
    }

    /// The first owner's token.
    pub fn token(&self) -> PathBuf {
        self.servers[0].data().join("owner.token")
    }

    /// SIGKILL to all of Postgres that listens.
    pub fn kill_postgres(&self) {
        let path = self.postgres.cluster.directory().join("data/postmaster.pid");
        let kept = fs::read_to_string(path).unwrap_or_default();
        if let Some(pid) = kept.lines().next() {
            signal("-KILL", pid.trim());
        }
    }

    /// Without writing anything down.
    pub fn stop_postgres(&self) {
        let _was_gone = self.postgres.cluster.stop();
    }

    /// Start it, if it is not there; what is left of the former one must end first.
    pub fn start_postgres(&self) {
        until("Postgres to come back", Duration::from_secs(60), || {
            let Postgres { cluster, settings, .. } = &self.postgres;
            self.runtime.block_on(Cluster::start(cluster.directory(), settings)).is_ok()
        });
    }

    /// End all connections of the servers.
    pub fn end_backends(&self) {
        let end = "select pg_terminate_backend(pid) from pg_stat_activity \
                   where datname = current_database() and pid <> pg_backend_pid()";
        let _ended = self.runtime.block_on(async {
            let pool = event_log::connect(&self.postgres.cluster.url("stead"), 1).await?;
            sqlx::query(end).execute(&pool).await
        });
    }

    /// The small disk, where one can be mounted.
    pub fn disk(&self) -> Option<&Disk> {
        self.postgres.disk.as_ref()
    }

    /// As much room as ever.
    pub fn make_room(&self) {
        assert!(self.disk().is_none_or(|disk| disk.resize(ROOM_MB)));
    }
}

impl Postgres {
    fn start(runtime: &Runtime, at: &Path) -> Postgres {
        fs::create_dir(at).unwrap();
        let disk = Disk::mount(at, ROOM_MB);
        // A circle of locks is found before a swap gives up, and counted.
        let more = [
            "max_connections=120",
            "shared_buffers=32MB",
            "deadlock_timeout=20ms",
            "max_wal_size=256MB",
        ];
        let settings = Settings { fsync: true, more: more.map(String::from).into() };
        let cluster = runtime.block_on(Cluster::start(&at.join("pg"), &settings)).unwrap();
        Postgres { cluster, settings, disk }
    }

    /// A database with a log; its owner's URL.
    fn prepare(&self, runtime: &Runtime) -> String {
        runtime.block_on(async {
            let admin = event_log::connect(&self.cluster.url("postgres"), 1).await.unwrap();
            for says in ["create role stead_app login", "create database stead"] {
                sqlx::raw_sql(says).execute(&admin).await.unwrap();
            }
        });
        let url = self.cluster.url("stead");
        stdout_of(Command::new(program("stead")).arg("migrate").env("DATABASE_OWNER_URL", &url));
        url
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ended = self.cluster.stop();
    }
}

/// An app of files, an install that approves by itself, and the customer who runs it.
fn customer(server: &Server, balancer: &Balancer) -> (Builder, Runner) {
    let builder = server.build_runner(&[]);
    let app = notes_files(server.dir());
    let plugin = format!("files={}", program("stead-plugin-files").display());
    server.ask(&["apps", "sync", app.to_str().unwrap(), "--plugin", &plugin, "--wait"]);
    let create =
        ["installs", "create", "notes-files", "acme", "--auto-approve", "--input", "company=Acme"];
    let created = server.ask(&create);
    let plugins = server.dir().join("plugins");
    fs::create_dir(&plugins).unwrap();
    fs::copy(program("stead-plugin-files"), plugins.join("stead-plugin-files")).unwrap();
    let customer = Customer::new(server, "customer").calls(&balancer.runner());
    let customer = customer.with(&["--plugin-dir", plugins.to_str().unwrap()]);
    let customer = customer.pass("STEAD_FILES_PAUSE_MS", PACE_MS);
    (builder, customer.start(server, created["enrolment"]["token"].as_str().unwrap()))
}

/// Debian's libfaketime, for programs with threads.
fn faketime() -> Option<String> {
    let named = std::env::var("STEAD_FAKETIME").ok();
    let mut places = named.into_iter().map(PathBuf::from).collect::<Vec<_>>();
    for lib in fs::read_dir("/usr/lib").into_iter().flatten().flatten() {
        places.push(lib.path().join("faketime/libfaketimeMT.so.1"));
    }
    let found = places.into_iter().find(|path| path.is_file());
    if found.is_none() {
        assert!(!tests::in_ci(), "CI must have libfaketime (Debian: libfaketime)");
        println!(
            "NO CLOCK JUMPS: libfaketime is not installed (Debian: libfaketime), or name it in STEAD_FAKETIME"
        );
    }
    found.map(|path| path.display().to_string())
}

pub fn signal(name: &str, pid: &str) {
    let _gone = Command::new("kill").args([name, pid]).output();
}
