//! Runner that is killed in the middle of a sync.
use std::{
    collections::BTreeSet,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tests::{
    InterceptingProxy, RecordedCall, Registry, shim_of, stdout_of, succeeded, until, until_some,
};

use super::{ImageApp, TIMEOUT, install, output, server};

/// Returns the digest of the blob whose upload a call completes.
fn completed_upload(call: &RecordedCall) -> Option<String> {
    let query = call.path.split_once("/blobs/uploads/")?.1.split_once('?')?.1;
    let digest = query.split('&').find_map(|pair| pair.strip_prefix("digest="))?;
    (call.method == "PUT").then(|| digest.replace("%3A", ":"))
}

#[test]
fn a_killed_sync_continues_without_repeating_an_upload() {
    let Some(upstream) = Registry::start_or_skip() else { return };
    let Some(own) = Registry::start_or_skip() else { return };
    let layers: [&[u8]; 3] = [b"one", b"two", b"three"];
    let image = upstream.push_image("acme/web", "1.0", "linux/amd64", &layers);
    let blobs = layers.len() + 1;
    // given a registry that holds back its responses to uploads until the runner is killed
    let (uploads, is_killed) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicBool>::default());
    let (seen, is_open) = (Arc::clone(&uploads), Arc::clone(&is_killed));
    let proxy = InterceptingProxy::before(&own.url(), move |call| {
        if let Some(digest) = completed_upload(call) {
            seen.lock().unwrap().push(digest);
            while !is_open.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        None
    });
    let server = server(&upstream);
    let app = ImageApp::new(&server, "images");
    app.image("web", "acme/web", "1.0", "").sync(&server);
    let host = proxy.url().trim_start_matches("http://");
    let registry = format!("oci://{host}/shop/acme");
    let mut runner = install(&server, &app, &["--registry", &registry]);

    // when agent and shim are killed after the registry stored the blobs, but before the manifest
    until("the uploads", TIMEOUT, || uploads.lock().unwrap().len() == blobs);
    assert!(own.manifest("shop/acme/web", &image.digest).is_none());
    let job = until_some("the sync", TIMEOUT, || {
        let jobs = server.cli_json(&["jobs", "list", "--install", "acme", "--state", "running"]);
        let sync = jobs.as_array()?.iter().find(|job| job["kind"] == "sync")?.clone();
        Some(sync["id"].as_str()?.to_owned())
    });
    runner.kill();
    stdout_of(Command::new("kill").args(["-KILL", &shim_of(&job)]));
    is_killed.store(true, Ordering::Relaxed);
    runner.restart();

    // then the install has the complete image, and no blob was uploaded twice
    succeeded(&server, "acme");
    assert!(own.manifest("shop/acme/web", &image.digest).is_some());
    assert_eq!(output(&server, "web")["digest"], image.digest.as_str());
    let uploads = uploads.lock().unwrap();
    let different: BTreeSet<&String> = uploads.iter().collect();
    assert_eq!((different.len(), uploads.len()), (blobs, blobs), "{uploads:?}");
    // and the next deploy copies nothing
    server.cli_json(&["installs", "deploy", "acme", "--reason", "again"]);
    let run = succeeded(&server, "acme");
    assert_eq!(tests::step(&run, "web")["plan"]["noop"], true, "{run:#}");
}
