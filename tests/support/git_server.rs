//! Git server on a loopback address: HTTP in front of `git http-backend`.
use std::{
    fs,
    io::{BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use tempfile::TempDir;

use crate::{in_ci, proxy::read_call, stdout_of};

/// Server of bare repositories, until the test ends.
pub struct GitServer {
    url: String,
    dir: TempDir,
}

impl GitServer {
    /// Starts a server without repositories. Without the program, the test prints a note and
    /// passes; in CI it fails.
    #[track_caller]
    pub fn start_or_skip() -> Option<GitServer> {
        let Some(backend) = std::env::var_os("STEAD_TEST_GIT_BACKEND").map(PathBuf::from) else {
            assert!(!in_ci(), "CI must have git-http-backend in STEAD_TEST_GIT_BACKEND");
            eprintln!("SKIPPED: no git server: set STEAD_TEST_GIT_BACKEND");
            return None;
        };
        let dir = tempfile::Builder::new().prefix("stead-git-").tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let root = dir.path().to_path_buf();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (backend, root) = (backend.clone(), root.clone());
                // A client that disconnects needs no response.
                thread::spawn(move || respond(stream, &backend, &root));
            }
        });
        Some(GitServer { url, dir })
    }

    /// Returns the URL of a repository.
    pub fn url(&self, repository: &str) -> String {
        format!("{}/{repository}.git", self.url)
    }

    /// Commits files to the branch `main` of a repository, which the first commit creates. Returns
    /// the id of the commit.
    #[track_caller]
    pub fn commit(&self, repository: &str, files: &[(&str, &str)]) -> String {
        let bare = self.dir.path().join(format!("{repository}.git"));
        let work = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let author = ["-c", "user.name=Test", "-c", "user.email=test@example.com"];
            stdout_of(Command::new("git").args(author).args(args).current_dir(&work))
        };
        if !bare.exists() {
            git(&["init", "--quiet", "--bare", "--initial-branch=main", bare.to_str().unwrap()]);
        }
        git(&["clone", "--quiet", bare.to_str().unwrap(), "."]);
        for (path, text) in files {
            let path = work.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        git(&["add", "--all"]);
        git(&["commit", "--quiet", "--message", "Change files"]);
        git(&["push", "--quiet", "origin", "HEAD:main"]);
        git(&["rev-parse", "HEAD"]).trim().to_string()
    }
}

/// Runs the backend for one request, as a web server runs a CGI program.
fn respond(client: TcpStream, backend: &Path, root: &Path) -> std::io::Result<()> {
    let call = read_call(&mut BufReader::new(client.try_clone()?))?;
    let (path, query) = call.path.split_once('?').unwrap_or((&call.path, ""));
    let mut child = Command::new(backend)
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", &call.method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", call.header("content-type"))
        .env("CONTENT_LENGTH", call.body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", call.header("content-encoding"))
        .env("GIT_PROTOCOL", call.header("git-protocol"))
        .env("REMOTE_ADDR", "127.0.0.1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().unwrap();
    // The backend can end before it has read the body.
    let _written = stdin.write_all(&call.body);
    drop(stdin);
    let output = child.wait_with_output()?.stdout;
    let status = output.strip_prefix(b"Status: ").map_or(&b"200 OK\r\n"[..], |_| b"");
    let mut client = client;
    client.write_all(b"HTTP/1.0 ")?;
    client.write_all(status)?;
    client.write_all(output.strip_prefix(b"Status: ").unwrap_or(&output))
}
