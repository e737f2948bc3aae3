//! Benchmark of the sync of a container image, compared with `skopeo copy`.
//!
//! Each round copies the same image to an empty registry on loopback: once with a job of the runner,
//! from the server's registry, and once with skopeo, from the upstream registry. The time of the job
//! includes its start and its reports. Then the manifest of the image is deleted, so that the next
//! deploy syncs again: the registry has every blob, and none may move.
use std::{
    fmt::Write as _,
    fs,
    process::Command,
    time::{Duration, Instant},
};

use measure::{Quantiles, spread};
use rand::RngCore as _;
use serde_json::json;
use tests::{PushedImage, Registry, Server, stdout_of, step};

use crate::{
    command_line::{BenchOptions, check_arguments},
    installs,
};

const LAYERS: usize = 16;
/// Size of a layer in bytes.
const LAYER_BYTES: usize = 64 << 20;
/// Size of a layer in a quick run.
const QUICK_LAYER_BYTES: usize = 1 << 20;
/// Largest median of the sync, in medians of skopeo.
const TARGET: f64 = 1.1;

const USAGE: &str = "stead-bench-image [--quick] [--json] [--rounds N]";

/// Durations of each round.
#[derive(Default)]
struct Times {
    sync: Vec<Duration>,
    skopeo: Vec<Duration>,
    /// Syncs to a registry that has every blob.
    repeated: Vec<Duration>,
}

/// Runs `scripts/bench image`.
pub fn main() {
    check_arguments(USAGE);
    let options = BenchOptions::read();
    let upstream = registry();
    let layer_bytes = options.choose(QUICK_LAYER_BYTES, LAYER_BYTES);
    let image = push(&upstream, layer_bytes);
    let mirror = format!("docker.io={}", upstream.url());
    let server = Server::up_with("127.0.0.1:0", &["--registry-mirror", &mirror]);
    publish(&server);
    let mut times = Times::default();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        // The order alternates, so that neither side always writes to the emptier cache.
        if round % 2 == 0 {
            times.skopeo.push(skopeo(&upstream));
        }
        let (sync, repeated) = sync(&server, &image, round);
        times.sync.push(sync);
        times.repeated.push(repeated);
        if round % 2 == 1 {
            times.skopeo.push(skopeo(&upstream));
        }
    }
    report(options, LAYERS * layer_bytes, times);
}

fn registry() -> Registry {
    Registry::start_or_skip().expect("cannot start a registry: set STEAD_TEST_REGISTRY")
}

/// Pushes an image whose layers no registry can compress.
fn push(upstream: &Registry, layer_bytes: usize) -> PushedImage {
    let layer = |_| {
        let mut bytes = vec![0; layer_bytes];
        rand::thread_rng().fill_bytes(&mut bytes);
        bytes
    };
    let layers: Vec<Vec<u8>> = (0..LAYERS).map(layer).collect();
    let layers: Vec<&[u8]> = layers.iter().map(Vec::as_slice).collect();
    upstream.push_image("acme/large", "1", "linux/amd64", &layers)
}

/// Publishes an app with the image, and builds it.
fn publish(server: &Server) {
    let app = server.dir().join("large");
    fs::create_dir_all(app.join("components")).unwrap();
    fs::write(app.join("metadata.toml"), "version = \"v2\"\n").unwrap();
    let image = "name = \"web\"\ntype = \"container_image\"\n\
                 [public]\nimage_url = \"acme/large\"\ntag = \"1\"\n";
    fs::write(app.join("components/web.toml"), image).unwrap();
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
}

/// Copies the image with skopeo, which keeps the digests, so that it neither compresses nor rewrites.
fn skopeo(upstream: &Registry) -> Duration {
    let own = registry();
    let from = format!("docker://{}/acme/large:1", upstream.host());
    let to = format!("docker://{}/acme/web:1", own.host());
    let mut copy = Command::new("skopeo");
    copy.args(["copy", "--quiet", "--preserve-digests"]);
    copy.args(["--src-tls-verify=false", "--dest-tls-verify=false", &from, &to]);
    let began = Instant::now();
    stdout_of(&mut copy);
    began.elapsed()
}

/// Provisions an install with an empty registry, and syncs the image again to the registry without
/// its manifest. Returns the durations of both jobs.
fn sync(server: &Server, image: &PushedImage, round: u64) -> (Duration, Duration) {
    let own = registry();
    let name = format!("install-{round}");
    let prefix = format!("oci://{}/acme", own.host());
    let (_runner, run) = installs::provision(server, "large", &name, |customer| {
        customer.with(&["--registry", &prefix])
    });
    let first = installs::duration(server, &step(&run, "web")["job"]);
    let uploads = own.uploads();
    assert_eq!(uploads, LAYERS + 1, "the layers and the config");

    own.delete("acme/web", &image.digest);
    let run = installs::deploy(server, &name);
    let job = &step(&run, "web")["job"];
    let shown = server.cli_json(&["jobs", "show", job.as_str().unwrap()]);
    assert_eq!(shown["kind"], "sync", "{shown:#}");
    let mut logs = server.stead_for_people();
    let log = stdout_of(logs.args(["jobs", "logs", job.as_str().unwrap()]));
    assert!(log.contains("copied 0 blobs, 0 bytes"), "{log}");
    assert_eq!(own.uploads(), uploads, "the second sync moved blobs");
    (first, installs::duration(server, job))
}

fn report(options: BenchOptions, bytes: usize, times: Times) {
    let ratios = times.sync.iter().zip(&times.skopeo);
    let ratios: Vec<f64> =
        ratios.map(|(sync, copy)| sync.as_secs_f64() / copy.as_secs_f64()).collect();
    let [sync, skopeo, repeated] = [times.sync, times.skopeo, times.repeated].map(Quantiles::of);
    let ratio = sync.p50 / skopeo.p50;
    if options.json {
        let document = json!({
            "machine": measure::machine(), "bytes": bytes, "sync": sync.json(),
            "skopeo": skopeo.json(), "ratio": ratio, "ratios": ratios, "target": TARGET,
            "second_sync": repeated.json(), "second_sync_blobs": 0,
        });
        println!("{document:#}");
        return;
    }
    let mut text = "| operation | p50, ms | max, ms |\n|---|---|---|\n".to_owned();
    let mib = bytes >> 20;
    for (name, times) in [
        (format!("sync job, {mib} MiB in {LAYERS} layers"), sync),
        ("`skopeo copy --preserve-digests`".to_owned(), skopeo),
        ("second sync job, which moves no blob".to_owned(), repeated),
    ] {
        let _ = writeln!(text, "| {name} | {:.0} | {:.0} |", times.p50, times.most);
    }
    let spread = spread(ratios.into_iter(), 2);
    let _ = writeln!(
        text,
        "\nSync ÷ skopeo: {ratio:.2} of medians; per round {spread}; target ≤ {TARGET}."
    );
    println!("{}\n\n{text}", measure::machine());
}
