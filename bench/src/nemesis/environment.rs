//! The environment of the faults: two servers behind one address, one Postgres on its own disk, and
//! a customer's runner. Each server has its own proxy to Postgres and its own clock.
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use event_log::{
    Archives, Source,
    testing::{Cluster, Disk, Settings, proxy::Proxy, settings},
};
use sqlx::PgPool;
use tempfile::TempDir;
use tests::{Balancer, Builder, Customer, Runner, Server, notes_files, program, stdout_of, until};
use tokio::runtime::Runtime;

use crate::command_line::enterable;

/// Size of the database's disk in megabytes while it is not full.
const DISK_MB: u32 = 4_096;
/// Duration of an effect in milliseconds.
const PAUSE_MS: &str = "120";

/// All processes of the campaign. The order of the fields is the order in which a drop stops the
/// processes.
pub struct Environment {
    pub runner: Runner,
    _builder: Builder,
    pub servers: Vec<Server>,
    pub balancer: Balancer,
    pub proxies: Vec<Proxy>,
    /// Clock files of the servers, if clocks can be changed.
    pub clocks: Option<Vec<PathBuf>>,
    postgres: Postgres,
    pub runtime: Runtime,
    pub dir: TempDir,
}

struct Postgres {
    cluster: Cluster,
    settings: Settings,
    disk: Option<Disk>,
}

impl Environment {
    /// Starts everything, with an install and its enrolled runner. `fault` is the fault to inject
    /// into the servers.
    pub fn new(runtime: Runtime, fault: Option<&str>) -> Environment {
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
            environment.extend(fault.map(|fault| ("STEAD_INJECTED_FAULT", fault)));
            let clock_file = clock.to_str().unwrap();
            if let Some(library) = &library {
                fs::write(clock, "+0").unwrap();
                environment.extend([
                    ("LD_PRELOAD", library.as_str()),
                    ("FAKETIME_TIMESTAMP_FILE", clock_file),
                    ("FAKETIME_CACHE_DURATION", "1"),
                    // Durations must not change with the clock.
                    ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
                ]);
            }
            let server = Server::beside(servers.first(), &application, &[], &environment);
            balancer.add(&server);
            servers.push(server);
        }
        let (builder, runner) = customer(&servers[0], &balancer);
        let clocks = library.map(|_| clocks);
        Environment {
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

    /// Pool that bypasses the proxies.
    fn pool(&self) -> PgPool {
        let url = self.postgres.cluster.url("stead");
        self.runtime.block_on(event_log::connect(&url, 4)).unwrap()
    }

    /// Log access with the servers' keys.
    pub fn source(&self) -> Source {
        let keys = api::keys::wrapping::load(&self.servers[0].data().join("keys")).unwrap();
        Source::new(&self.pool(), &Archives::default(), &keys)
    }

    /// File with the first owner's token.
    pub fn token(&self) -> PathBuf {
        self.servers[0].data().join("owner.token")
    }

    /// Sends SIGKILL to the processes of Postgres.
    pub fn kill_postgres(&self) {
        if let Some(pid) = self.postgres.cluster.pid() {
            signal("-KILL", &pid.to_string());
        }
    }

    /// Stops Postgres immediately, without a checkpoint.
    pub fn stop_postgres(&self) {
        let _was_gone = self.postgres.cluster.stop();
    }

    /// Starts Postgres if it does not run. Waits for the old processes to end.
    pub fn start_postgres(&self) {
        until("Postgres to start", Duration::from_secs(60), || {
            let Postgres { cluster, settings, .. } = &self.postgres;
            self.runtime.block_on(Cluster::start(&cluster.data, settings.clone())).is_ok()
        });
    }

    /// Terminates all connections of the servers.
    pub fn end_backends(&self) {
        let end = "select pg_terminate_backend(pid) from pg_stat_activity \
                   where datname = current_database() and pid <> pg_backend_pid()";
        let _ended = self.runtime.block_on(async {
            let pool = event_log::connect(&self.postgres.cluster.url("stead"), 1).await?;
            sqlx::query(end).execute(&pool).await
        });
    }

    /// The small disk, if this machine can mount one.
    pub fn disk(&self) -> Option<&Disk> {
        self.postgres.disk.as_ref()
    }

    /// Restores the space on the disk.
    pub fn make_room(&self) {
        assert!(self.disk().is_none_or(|disk| disk.resize(DISK_MB)));
    }
}

impl Postgres {
    fn start(runtime: &Runtime, at: &Path) -> Postgres {
        fs::create_dir(at).unwrap();
        let disk = Disk::mount(at, DISK_MB);
        // A deadlock is detected before a rebuild's swap gives up, and is counted.
        let more = [
            "max_connections=120",
            "shared_buffers=32MB",
            "deadlock_timeout=20ms",
            "max_wal_size=256MB",
        ];
        let settings = settings(true, &more);
        let at = at.join("pg");
        let cluster = runtime.block_on(Cluster::start(&at, settings.clone())).unwrap();
        Postgres { cluster, settings, disk }
    }

    /// Creates a database with a log. Returns the owner's URL.
    fn prepare(&self, runtime: &Runtime) -> String {
        runtime.block_on(async {
            let admin = event_log::connect(&self.cluster.url("postgres"), 1).await.unwrap();
            for sql in ["create role stead_app login", "create database stead"] {
                sqlx::raw_sql(sql).execute(&admin).await.unwrap();
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

/// Creates an app of files and an install with automatic approval, and starts the customer's
/// runner.
fn customer(server: &Server, balancer: &Balancer) -> (Builder, Runner) {
    let builder = server.build_runner(&[]);
    let app = notes_files(server.dir());
    let plugin = format!("files={}", program("stead-plugin-files").display());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--plugin", &plugin, "--wait"]);
    let create =
        ["installs", "create", "notes-files", "acme", "--auto-approve", "--input", "company=Acme"];
    let created = server.cli_json(&create);
    let plugins = server.dir().join("plugins");
    fs::create_dir(&plugins).unwrap();
    fs::copy(program("stead-plugin-files"), plugins.join("stead-plugin-files")).unwrap();
    let customer = Customer::new(server, "customer").calls(&balancer.runner());
    let customer = customer.with(&["--plugin-dir", plugins.to_str().unwrap()]);
    let customer = customer.pass("STEAD_FILES_PAUSE_MS", PAUSE_MS);
    (builder, customer.start(server, created["enrolment"]["token"].as_str().unwrap()))
}

/// Debian's libfaketime for programs with threads.
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
            "SKIPPED clock faults: libfaketime is not installed (Debian: libfaketime); install it or set STEAD_FAKETIME"
        );
    }
    found.map(|path| path.display().to_string())
}

pub fn signal(name: &str, pid: &str) {
    let _gone = Command::new("kill").args([name, pid]).output();
}
