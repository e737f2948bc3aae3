//! Build runner for a server that starts none by itself.
use std::{fs, process::Child};

use crate::{Server, launch::Launch, program};

/// Running `stead-runner --mode build`.
pub struct Builder {
    child: Child,
    launch: Launch,
}

impl Builder {
    pub(crate) fn start(
        server: &Server,
        token: &str,
        more: &[&str],
        environment: &[(&str, &str)],
    ) -> Builder {
        let dir = server.dir().join("builder");
        fs::create_dir_all(&dir).unwrap();
        let (token_file, data) = (dir.join("enrolment.token"), dir.join("data"));
        fs::write(&token_file, token).unwrap();
        let mut launch = Launch::new(&program("stead-runner"), dir.join("runner.log"));
        launch.with(["--mode", "build", "--server", server.runner()]);
        launch.with(["--server-key", server.fingerprint()]);
        launch.with(["--data", data.to_str().unwrap()]);
        launch.with(["--token-file", token_file.to_str().unwrap()]);
        environment.iter().for_each(|(name, value)| launch.env(name, value));
        Builder { child: launch.start(more), launch }
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _ended = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the build runner's log ---\n{}", self.launch.log());
        }
    }
}
