//! A build runner beside a server that starts none by itself.
use std::{
    fs::{self, File},
    process::{Child, Command, Stdio},
};

use crate::{Server, program};

/// A running `stead-runner --mode build`.
pub struct Builder {
    child: Child,
}

impl Builder {
    pub(crate) fn start(server: &Server, token: &str, more: &[&str]) -> Builder {
        let dir = server.dir().join("builder");
        fs::create_dir_all(&dir).unwrap();
        let token_file = dir.join("enrolment.token");
        fs::write(&token_file, token).unwrap();
        let log = File::create(dir.join("runner.log")).unwrap();
        let child = Command::new(program("stead-runner"))
            .args(["--mode", "build", "--server", server.runner()])
            .args(["--server-key", server.fingerprint()])
            .arg("--data")
            .arg(dir.join("data"))
            .arg("--token-file")
            .arg(&token_file)
            .args(more)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Builder { child }
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _ended = self.child.wait();
    }
}
