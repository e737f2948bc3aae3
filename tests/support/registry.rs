//! OCI registry on a loopback address: the reference implementation of the distribution project.
use std::{fs, net::TcpListener, path::PathBuf, process::Child, time::Duration};

use tempfile::TempDir;

use crate::{call, in_ci, launch::Launch, until};

/// Running registry with an empty storage.
pub struct Registry {
    child: Child,
    port: u16,
    /// Directory of the storage and the log.
    _dir: TempDir,
}

impl Registry {
    /// Starts a registry. Without the program, the test prints a note and passes; in CI it fails.
    #[track_caller]
    pub fn start_or_skip() -> Option<Registry> {
        let Some(program) = std::env::var_os("STEAD_TEST_REGISTRY").map(PathBuf::from) else {
            assert!(!in_ci(), "CI must have a registry program in STEAD_TEST_REGISTRY");
            eprintln!("SKIPPED: no registry: set STEAD_TEST_REGISTRY");
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = tempfile::Builder::new().prefix("stead-registry-").tempdir().unwrap();
        let storage = dir.path().join("storage");
        let config = format!(
            "version: 0.1\nlog: {{level: warn}}\nhttp: {{addr: \"127.0.0.1:{port}\"}}\n\
             storage: {{delete: {{enabled: true}}, filesystem: {{rootdirectory: {storage:?}}}}}\n"
        );
        let config_file = dir.path().join("config.yml");
        fs::write(&config_file, config).unwrap();
        let mut launch = Launch::new(&program, dir.path().join("log"));
        launch.env("OTEL_TRACES_EXPORTER", "none");
        let mut child = launch.start(&["serve", config_file.to_str().unwrap()]);
        until("the registry", Duration::from_secs(30), || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the registry ended with {status}\n{}", launch.log());
            }
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        let registry = Registry { child, port, _dir: dir };
        assert_eq!(call("GET", &format!("{}/v2/", registry.url()), &[], b"").status, 200);
        Some(registry)
    }

    /// Returns the host and port, as references of images contain them.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        format!("http://{}", self.host())
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}
