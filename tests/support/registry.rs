//! OCI registry on a loopback address: the reference implementation of the distribution project.
use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Child,
    time::Duration,
};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::{HttpResponse, call, in_ci, launch::Launch, until};

/// User of a private registry.
pub const REGISTRY_USER: &str = "builder";
/// Password of a private registry.
pub const REGISTRY_PASSWORD: &str = "s3cr3t-helper";
/// bcrypt hash of the password.
const PASSWORD_HASH: &str = "$2b$04$tRdhcKpyD0WIiW9zbWQsnusxuyMr0wjjM2KRp7Ll1npgEGWWJXe5K";

/// Running registry with an empty storage.
pub struct Registry {
    child: Child,
    launch: Launch,
    port: u16,
    /// Header of the only user. Without one, the registry is public.
    authorization: Option<String>,
    /// Directory of the storage and the log.
    dir: TempDir,
}

impl Registry {
    /// Starts a registry. Without the program, the test prints a note and passes; in CI it fails.
    #[track_caller]
    pub fn start_or_skip() -> Option<Registry> {
        Registry::start(false)
    }

    /// Starts a registry that requires [`REGISTRY_USER`] and [`REGISTRY_PASSWORD`].
    #[track_caller]
    pub fn private_or_skip() -> Option<Registry> {
        Registry::start(true)
    }

    #[track_caller]
    fn start(is_private: bool) -> Option<Registry> {
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
        let users = dir.path().join("users");
        fs::write(&users, format!("{REGISTRY_USER}:{PASSWORD_HASH}\n")).unwrap();
        let auth = format!("auth: {{htpasswd: {{realm: test, path: {users:?}}}}}\n");
        let config = if is_private { config + &auth } else { config };
        let authorization = is_private.then(|| {
            format!("Basic {}", crate::git::base64(&format!("{REGISTRY_USER}:{REGISTRY_PASSWORD}")))
        });
        let config_file = dir.path().join("config.yml");
        fs::write(&config_file, config).unwrap();
        let mut launch = Launch::new(&program, dir.path().join("log"));
        launch.env("OTEL_TRACES_EXPORTER", "none");
        let child = serve(&launch, dir.path(), port);
        let registry = Registry { child, launch, port, authorization, dir };
        assert_eq!(registry.call("GET", &format!("{}/v2/", registry.url()), &[], b"").status, 200);
        Some(registry)
    }

    fn call(&self, method: &str, url: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpResponse {
        let authorization =
            self.authorization.iter().map(|value| ("Authorization", value.as_str()));
        let headers: Vec<_> = headers.iter().copied().chain(authorization).collect();
        call(method, url, &headers, body)
    }

    /// Ends the registry. Its storage remains.
    pub fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts a stopped registry with the same port and storage.
    #[track_caller]
    pub fn resume(&mut self) {
        self.child = serve(&self.launch, self.dir.path(), self.port);
    }

    /// Changes the first byte of a stored blob.
    #[track_caller]
    pub fn tamper(&self, digest: &str) {
        let hex = digest.strip_prefix("sha256:").unwrap();
        let blobs = self.dir.path().join("storage/docker/registry/v2/blobs/sha256");
        let file = blobs.join(&hex[..2]).join(hex).join("data");
        let mut bytes = fs::read(&file).unwrap();
        bytes[0] ^= 1;
        fs::write(&file, bytes).unwrap();
    }

    /// Returns Docker's config.json with the user of a private registry.
    pub fn docker_config(&self) -> String {
        let auth = crate::git::base64(&format!("{REGISTRY_USER}:{REGISTRY_PASSWORD}"));
        json!({"auths": {self.host(): {"auth": auth}}}).to_string()
    }

    /// Returns the host and port, as references of images contain them.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        format!("http://{}", self.host())
    }
}

#[track_caller]
fn serve(launch: &Launch, dir: &Path, port: u16) -> Child {
    let mut child = launch.start(&["serve", dir.join("config.yml").to_str().unwrap()]);
    until("the registry", Duration::from_secs(30), || {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("the registry ended with {status}\n{}", launch.log());
        }
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    child
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Image in a registry.
#[derive(Debug, Clone)]
pub struct PushedImage {
    /// Digest of the manifest or of the index.
    pub digest: String,
    size: usize,
    media_type: &'static str,
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

impl Registry {
    /// Pushes an image for one platform, with these layers, under a tag.
    #[track_caller]
    pub fn push_image(
        &self,
        name: &str,
        tag: &str,
        platform: &str,
        layers: &[&[u8]],
    ) -> PushedImage {
        let (os, architecture) = platform.split_once('/').unwrap();
        let diffs: Vec<_> = layers.iter().map(|layer| digest(layer)).collect();
        let config = json!({
            "os": os, "architecture": architecture, "config": {},
            "rootfs": {"type": "layers", "diff_ids": diffs},
        });
        let config = config.to_string().into_bytes();
        let descriptor = |media_type: &str, bytes: &[u8]| {
            self.push_blob(name, bytes);
            json!({"mediaType": media_type, "digest": digest(bytes), "size": bytes.len()})
        };
        let layer_type = "application/vnd.oci.image.layer.v1.tar";
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": layers.iter().map(|layer| descriptor(layer_type, layer)).collect::<Vec<_>>(),
        });
        self.put_document(name, tag, MANIFEST, &manifest)
    }

    /// Pushes an index of images that are in the repository, each with its platform.
    #[track_caller]
    pub fn push_index(
        &self,
        name: &str,
        tag: &str,
        images: &[(&str, &PushedImage)],
    ) -> PushedImage {
        let listed = images.iter().map(|(platform, image)| {
            let (os, architecture) = platform.split_once('/').unwrap();
            json!({
                "mediaType": image.media_type, "digest": image.digest, "size": image.size,
                "platform": {"os": os, "architecture": architecture},
            })
        });
        let listed: Vec<_> = listed.collect();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed});
        self.put_document(name, tag, INDEX, &index)
    }

    /// Returns the body of a manifest, or `None` if it does not exist.
    pub fn manifest(&self, name: &str, reference: &str) -> Option<Value> {
        let accept = [(
            "Accept",
            "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json",
        )];
        let url = format!("{}/v2/{name}/manifests/{reference}", self.url());
        let response = self.call("GET", &url, &accept, b"");
        (response.status == 200).then(|| response.json())
    }

    /// Returns the number of uploaded blobs so far, from the access log.
    pub fn uploads(&self) -> usize {
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap();
        let is_upload =
            |line: &&str| line.contains("\"PUT /v2/") && line.contains("/blobs/uploads/");
        log.lines().filter(is_upload).count()
    }

    /// Deletes a manifest.
    #[track_caller]
    pub fn delete(&self, name: &str, digest: &str) {
        let url = format!("{}/v2/{name}/manifests/{digest}", self.url());
        assert_eq!(call("DELETE", &url, &[], b"").status, 202);
    }

    fn push_blob(&self, name: &str, bytes: &[u8]) {
        let start = format!("{}/v2/{name}/blobs/uploads/", self.url());
        let upload = self.call("POST", &start, &[], b"");
        let mut headers = upload.headers.lines();
        let location = headers.find_map(|line| line.strip_prefix("Location: ")).unwrap();
        let kind = [("Content-Type", "application/octet-stream")];
        let digest = digest(bytes);
        let put = self.call("PUT", &format!("{location}&digest={digest}"), &kind, bytes);
        assert_eq!(put.status, 201, "{}", put.body);
    }

    fn put_document(
        &self,
        name: &str,
        tag: &str,
        media_type: &'static str,
        document: &Value,
    ) -> PushedImage {
        let bytes = document.to_string().into_bytes();
        let url = format!("{}/v2/{name}/manifests/{tag}", self.url());
        let put = self.call("PUT", &url, &[("Content-Type", media_type)], &bytes);
        assert_eq!(put.status, 201, "{}", put.body);
        PushedImage { digest: digest(&bytes), size: bytes.len(), media_type }
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}
