//! Empty database, as an operator creates it for `stead migrate` and `stead serve`.
use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use event_log::testing::{Binaries, Cluster, Settings, fresh_empty_database, settings};
use tempfile::TempDir;

use crate::{Server, stdout_of};

/// SQL that creates the application's role. Roles belong to the cluster, so another test may have
/// created the role.
const ROLE: &str = "do $$ begin create role stead_app login; exception when others then \
                    alter role stead_app login; end $$";

/// URLs for the database's owner and for the role that inserts and selects.
pub(crate) struct Urls {
    pub owner: String,
    pub application: String,
}

impl Urls {
    fn of(owner: String) -> Urls {
        let application = owner.replacen("//stead@", "//stead_app@", 1);
        assert_ne!(owner, application, "the owner's URL names no role");
        Urls { owner, application }
    }
}

fn psql(url: &str, says: &str) {
    let mut psql = Command::new(Binaries::find().unwrap().program("psql"));
    stdout_of(psql.args(["-X", "-q", "-d", url, "-c", says]));
}

/// Executes SQL in the server's database as the owner of its tables.
#[track_caller]
pub fn execute_sql(server: &Server, says: &str) {
    let url = server.database().replace("stead_app@", "stead_owner@");
    psql(&url, &format!("set search_path to stead; {says}"));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Creates a database in the cluster that all tests share, which has a socket and no port.
pub(crate) fn empty() -> Urls {
    let urls = Urls::of(runtime().block_on(fresh_empty_database()).unwrap().url);
    psql(&urls.owner, ROLE);
    urls
}

/// Postgres of one test, on a loopback port.
pub struct Postgres {
    cluster: Cluster,
    port: u16,
    _dir: TempDir,
}

impl Postgres {
    /// Creates and starts a Postgres cluster on a free loopback port.
    pub fn on_loopback() -> Postgres {
        let dir = tempfile::Builder::new().prefix("stead-pg-").tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = Settings { port: Some(port), ..settings(false, &[]) };
        let cluster = runtime().block_on(Cluster::start(dir.path(), settings)).unwrap();
        Postgres { cluster, port, _dir: dir }
    }

    pub fn port(&self) -> String {
        self.port.to_string()
    }

    pub(crate) fn empty(&self) -> Urls {
        let url = |database: &str| format!("postgresql://stead@127.0.0.1:{}/{database}", self.port);
        psql(&url("postgres"), "create database stead");
        psql(&url("postgres"), ROLE);
        Urls::of(url("stead"))
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ended = self.cluster.stop();
    }
}

/// Returns a dump of the database, as an operator's backup makes it.
pub fn dump(server: &Server) -> Vec<u8> {
    let mut found = vec![PathBuf::from("pg_dump")];
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        found.extend(versions.filter_map(Result::ok).map(|dir| dir.path().join("bin/pg_dump")));
    }
    found.extend(std::env::var_os("STEAD_PG_BIN").map(|dir| Path::new(&dir).join("pg_dump")));
    let works = |path: &&PathBuf| Command::new(path).arg("--version").output().is_ok();
    // The newest pg_dump reads the databases of all older versions.
    let program = found.iter().rfind(works).unwrap_or_else(|| panic!("no pg_dump in {found:?}"));
    let url = server.database().replace("stead_app@", "stead_owner@");
    let output = Command::new(program).arg("--dbname").arg(url).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.len() > 10_000, "a dump of {} bytes", output.stdout.len());
    output.stdout
}
