//! Git server on loopback: `git http-backend` and git LFS behind a small HTTP server.
use std::{
    fs,
    io::{BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::{proxy::read_call, stdout_of};

/// Directory of a bare repository with the contents of files in git LFS.
const LFS: &str = "lfs-objects";

/// Git server with bare repositories `OWNER/NAME`. Its thread ends with the process.
pub struct GitServer {
    dir: TempDir,
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    sent: Arc<AtomicU64>,
}

/// Repository of a [`GitServer`], with a working copy to which a test commits.
pub struct GitRepository {
    work: PathBuf,
    bare: PathBuf,
}

impl GitServer {
    pub fn start() -> GitServer {
        GitServer::with_password(None)
    }

    /// Starts a server that requires this user and password, as `user:password`.
    pub fn with_password(password: Option<&str>) -> GitServer {
        let dir = tempfile::Builder::new().prefix("stead-git-").tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, sent) = (Arc::new(Mutex::new(vec![])), Arc::new(AtomicU64::new(0)));
        let (root, seen) = (dir.path().join("bare"), Arc::clone(&requests));
        let counter = Arc::clone(&sent);
        let authorization = password.map(|password| format!("Basic {}", base64(password)));
        fs::create_dir(&root).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (root, seen) = (root.clone(), Arc::clone(&seen));
                let (authorization, counter) = (authorization.clone(), Arc::clone(&counter));
                // A client that hangs up ends its own connection only.
                std::thread::spawn(move || {
                    let sent = serve(stream, &root, authorization.as_deref(), &seen);
                    counter.fetch_add(sent.unwrap_or_default(), Ordering::Relaxed);
                });
            }
        });
        GitServer { dir, port, requests, sent }
    }

    /// Returns the URL of a repository on this server.
    pub fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}", self.port)
    }

    /// Returns the port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Writes a git configuration that reads `https://github.com/` from this server.
    pub fn configuration(&self, more: &str) -> PathBuf {
        let file = self.dir.path().join("gitconfig");
        let server = format!("http://127.0.0.1:{}/", self.port);
        let text = format!("[url \"{server}\"]\n  insteadOf = https://github.com/\n{more}\n");
        fs::write(&file, text).unwrap();
        file
    }

    /// Creates the repository `OWNER/NAME` with an empty branch `main`.
    pub fn repository(&self, name: &str) -> GitRepository {
        let (bare, work) =
            (self.dir.path().join("bare").join(name), self.dir.path().join("work").join(name));
        fs::create_dir_all(&bare).unwrap();
        fs::create_dir_all(&work).unwrap();
        let repository = GitRepository { work, bare };
        repository.bare(&["init", "--quiet", "--bare", "--initial-branch", "main"]);
        repository.bare(&["config", "uploadpack.allowFilter", "true"]);
        repository.git(&["init", "--quiet", "--initial-branch", "main"]);
        repository
    }

    /// Returns the requests so far: method, path and query.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns the bytes of all complete responses so far.
    pub fn sent_bytes(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl GitRepository {
    /// Returns the directory of the working copy.
    pub fn dir(&self) -> &Path {
        &self.work
    }

    /// Writes files, commits them to a branch and pushes it. Returns the commit.
    pub fn commit(&self, branch: &str, files: &[(&str, &str)]) -> String {
        for (path, text) in files {
            let path = self.work.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        self.commit_all(branch)
    }

    /// Commits all changes of the working copy to a branch and pushes it. Returns the commit.
    pub fn commit_all(&self, branch: &str) -> String {
        self.git(&["checkout", "--quiet", "-B", branch]);
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", "Change files"]);
        self.push(branch);
        self.git(&["rev-parse", "HEAD"]).trim().to_owned()
    }

    /// Pushes a branch or a tag.
    pub fn push(&self, name: &str) {
        let bare = self.bare.display().to_string();
        self.git(&["push", "--quiet", "--force", &bare, name]);
    }

    /// Deletes all commits on the server that no branch or tag contains.
    pub fn forget_old_commits(&self) {
        self.bare(&["reflog", "expire", "--expire=now", "--all"]);
        self.bare(&["gc", "--quiet", "--prune=now"]);
    }

    /// Stores content on the LFS server of the repository. Returns its pointer.
    pub fn lfs(&self, content: &str) -> String {
        let digest = format!("{:x}", Sha256::digest(content));
        let objects = self.bare.join(LFS);
        fs::create_dir_all(&objects).unwrap();
        fs::write(objects.join(&digest), content).unwrap();
        let size = content.len();
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {size}\n")
    }

    /// Runs git in the working copy.
    pub fn git(&self, args: &[&str]) -> String {
        run(&self.work, args)
    }

    fn bare(&self, args: &[&str]) -> String {
        run(&self.bare, args)
    }
}

fn run(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=Test", "-c", "user.email=test@example.com"]);
    command.args(["-c", "protocol.file.allow=always"]).args(args).current_dir(dir);
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    stdout_of(&mut command)
}

/// Responds to one request and closes the connection. Returns the length of the response.
fn serve(
    stream: TcpStream,
    root: &Path,
    authorization: Option<&str>,
    seen: &Mutex<Vec<String>>,
) -> std::io::Result<u64> {
    let call = read_call(&mut BufReader::new(stream.try_clone()?))?;
    let mut output = stream;
    let (path, query) = call.path.split_once('?').unwrap_or((&call.path, ""));
    seen.lock().unwrap().push(format!("{} {}", call.method, call.path));
    if authorization.is_some_and(|required| call.header("authorization") != required) {
        let denied = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"\r\n\
                      Content-Length: 0\r\nConnection: close\r\n\r\n";
        output.write_all(denied.as_bytes())?;
        return Ok(0);
    }
    if let Some((repository, request)) = path.split_once(".git/info/lfs/objects/") {
        let host = call.header("host").to_owned();
        let objects = root.join(repository.trim_start_matches('/')).join(LFS);
        let response = lfs_response(&objects, request, &call.body, &format!("http://{host}{path}"));
        let Some(body) = response else {
            output.write_all(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n")?;
            return Ok(0);
        };
        let (kind, length) = ("application/vnd.git-lfs+json", body.len());
        let head = format!("Content-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close");
        write!(output, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n")?;
        output.write_all(&body)?;
        return Ok(length as u64);
    }
    let mut backend = Command::new("git");
    backend.arg("http-backend").env("GIT_PROJECT_ROOT", root).env("GIT_HTTP_EXPORT_ALL", "1");
    backend.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    backend.env("PATH_INFO", path).env("QUERY_STRING", query).env("REQUEST_METHOD", &call.method);
    backend.env("REMOTE_ADDR", "127.0.0.1").env("CONTENT_LENGTH", call.body.len().to_string());
    for (name, variable) in [
        ("content-type", "CONTENT_TYPE"),
        ("content-encoding", "HTTP_CONTENT_ENCODING"),
        ("git-protocol", "HTTP_GIT_PROTOCOL"),
    ] {
        match call.header(name) {
            "" => {}
            value => drop(backend.env(variable, value)),
        }
    }
    let mut child =
        backend.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&call.body));
    let mut response = vec![];
    child.stdout.take().unwrap().read_to_end(&mut response)?;
    child.wait()?;
    let _closed = writer.join();
    let status = response
        .strip_prefix(b"Status: ")
        .and_then(|rest| rest.split(|byte| *byte == b'\r').next())
        .map_or("200 OK".into(), |status| String::from_utf8_lossy(status).into_owned());
    write!(output, "HTTP/1.1 {status}\r\nConnection: close\r\n")?;
    output.write_all(&response)?;
    Ok(response.len() as u64)
}

/// Returns the LFS server's response to a batch request or to the request of an object. `None` if
/// the object does not exist.
fn lfs_response(objects: &Path, request: &str, body: &[u8], url: &str) -> Option<Vec<u8>> {
    if request != "batch" {
        return fs::read(objects.join(request)).ok();
    }
    let batch: Value = serde_json::from_slice(body).ok()?;
    let object = |wanted: &Value| {
        let (oid, base) = (wanted["oid"].as_str()?, url.strip_suffix("batch")?);
        let mut object = json!({"oid": oid, "size": wanted["size"]});
        match objects.join(oid).is_file() {
            true => object["actions"] = json!({"download": {"href": format!("{base}{oid}")}}),
            false => object["error"] = json!({"code": 404, "message": "Object does not exist"}),
        }
        Some(object)
    };
    let objects: Option<Vec<Value>> = batch["objects"].as_array()?.iter().map(object).collect();
    Some(json!({"transfer": "basic", "objects": objects?}).to_string().into_bytes())
}

pub(crate) fn base64(text: &str) -> String {
    let mut command = Command::new("base64");
    let mut child =
        command.arg("-w0").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}
