//! Tests of published plugins whose artifact is already on the host.

use std::fs;

use ed25519_dalek::SigningKey;
use oci_layout::{
    ArtifactManifest, Blob, EMPTY, Layout, PlatformIndex,
    image::{ImageManifestBuilder, MediaType, SCHEMA_VERSION},
};
use runner_agent::plugins::{Outcome, PluginError};
use schemas::{
    manifest::{PluginArtifact, PluginRef},
    plugin::artifact::{
        ARTIFACT_TYPE, ENVELOPE_LIMIT, ENVELOPE_TYPE, EXECUTABLE_TYPE, PluginStatement,
        host_platform,
    },
    runner::JobKind,
};
use serde_json::json;

use super::test_runner::{JobSpec, TestRunner};

pub(super) fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

pub(super) const SCRIPT: &str = r#"#!/bin/sh
while read -r line; do
    id=$(echo "$line" | sed 's/^{"id":\([0-9]*\).*/\1/')
    value='{}'
    case "$line" in
        *'"call":"describe"'*) value='{"protocol":2,"name":"odd","version":"1.0","kinds":["build","plan","apply"]}' ;;
        *'"call":"plan"'*)
            echo x > "$(echo "$line" | sed 's/.*"plan_file":"\([^"]*\)".*/\1/')"
            value='{"noop":false,"add":1,"change":0,"destroy":0}' ;;
        *'"call":"preflight"'*) value='{"checks":[]}' ;;
    esac
    echo '{"type":"result","id":'$id',"value":'$value'}'
done
"#;

/// Stores an artifact of the plugin `odd` with this statement. Returns its reference, which names
/// the publisher of `key(1)`.
fn published(
    runner: &TestRunner,
    signer: &SigningKey,
    platform: &str,
    change: impl FnOnce(&mut PluginStatement),
) -> PluginRef {
    published_as(runner, SCRIPT, signer, platform, change)
}

/// Stores an artifact as [`published`] does, with this executable.
pub(super) fn published_as(
    runner: &TestRunner,
    script: &str,
    signer: &SigningKey,
    platform: &str,
    change: impl FnOnce(&mut PluginStatement),
) -> PluginRef {
    let executable = Blob::of(EXECUTABLE_TYPE, script.as_bytes());
    let mut statement = PluginStatement {
        name: "odd".into(),
        version: "1.0".into(),
        platform: platform.into(),
        executable: executable.digest.clone(),
        size_bytes: executable.size,
        protocols: vec![2],
    };
    change(&mut statement);
    let envelope = statement.sign(signer).unwrap();
    stored(runner, script, &envelope, platform)
}

/// Stores an artifact with an executable and an envelope.
fn stored(runner: &TestRunner, script: &str, envelope: &[u8], platform: &str) -> PluginRef {
    let layout = Layout::new(runner.at("artifacts"));
    let executable = Blob::of(EXECUTABLE_TYPE, script.as_bytes());
    let image = ImageManifestBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageManifest)
        .artifact_type(ARTIFACT_TYPE)
        .config(Blob::empty().descriptor())
        .layers([executable.descriptor(), Blob::of(ENVELOPE_TYPE, envelope).descriptor()])
        .build()
        .unwrap();
    let manifest = ArtifactManifest::try_from(image).unwrap().to_bytes().unwrap();
    let listed = Blob::of(MediaType::ImageManifest.as_ref(), &manifest);
    let index = PlatformIndex::new(ARTIFACT_TYPE, vec![(platform.into(), listed)]);
    for bytes in [script.as_bytes(), envelope, EMPTY, &manifest] {
        layout.put(bytes).unwrap();
    }
    let digest = layout.put(&index.to_bytes().unwrap()).unwrap();
    let artifact = PluginArtifact {
        repository: "stead.plugins/odd".into(),
        digest,
        size: executable.size + envelope.len() as u64,
        publisher: hex::encode(key(1).verifying_key().as_bytes()),
    };
    let (name, version) = ("odd".into(), "1.0".into());
    PluginRef { name, version, digest: None, artifact: Some(artifact) }
}

fn spec(plugin: PluginRef) -> JobSpec {
    let inputs = json!({ "component": "web", "operation": "apply" });
    JobSpec { kind: JobKind::Plan, plugin, artifacts: vec![], inputs, plan: None, state: None }
}

#[tokio::test]
async fn an_executable_that_its_publisher_signed_runs() {
    let (runner, host) = (TestRunner::new(), host_platform().unwrap());
    let plugin = published(&runner, &key(1), &host, |_| {});
    let (result, record) = runner.job(&spec(plugin)).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
    assert!(record.has("odd 1.0") && record.plan.is_some(), "{:?}", record.lines);
}

#[tokio::test]
async fn an_executable_without_a_matching_signature_never_runs() {
    let host = host_platform().unwrap();
    let refusal = async |signer: &SigningKey, platform: &str, change: fn(&mut PluginStatement)| {
        let runner = TestRunner::new();
        let plugin = published(&runner, signer, platform, change);
        let (result, record) = runner.job(&spec(plugin)).await;
        assert!(record.children.is_empty());
        match result {
            Err(PluginError::Unverified(why)) => why,
            other => panic!("{other:?} {:?}", record.lines),
        }
    };
    let why = refusal(&key(2), &host, |_| {}).await;
    assert!(why.contains("did not sign it"), "{why}");
    let why = refusal(&key(1), &host, |statement| statement.name = "even".into()).await;
    assert!(why.contains("its publisher signed even 1.0"), "{why}");
    let why = refusal(&key(1), &host, |statement| statement.version = "0.9".into()).await;
    assert!(why.contains("its publisher signed odd 0.9"), "{why}");
    let other = format!("sha256:{:064x}", 7);
    let why = refusal(&key(1), &host, |statement| {
        statement.executable = format!("sha256:{:064x}", 7).parse().unwrap();
    })
    .await;
    assert!(why.contains(&other), "{why}");
    let why = refusal(&key(1), &host, |statement| statement.platform = "plan9/mips".into()).await;
    assert!(why.contains("for plan9/mips"), "{why}");
    let runner = TestRunner::new();
    let plugin = published(&runner, &key(1), "plan9/mips", |_| {});
    let (result, record) = runner.job(&spec(plugin)).await;
    assert!(record.children.is_empty());
    let why = result.unwrap_err().to_string();
    assert!(why.contains("it has no executable for linux/"), "{why}");
}

#[tokio::test]
async fn an_executable_reports_the_version_and_a_protocol_that_its_publisher_signed() {
    let host = host_platform().unwrap();
    let result = async |script: &str, version: &str, protocols: Vec<u32>| {
        let runner = TestRunner::new();
        let mut plugin = published_as(&runner, script, &key(1), &host, |statement| {
            statement.version = version.into();
            statement.protocols = protocols;
        });
        plugin.version = version.into();
        runner.job(&spec(plugin)).await.0
    };
    // A publication can add a suffix to the version.
    for version in ["1.0", "1.0+0a1b2c3d"] {
        assert_eq!(result(SCRIPT, version, vec![1, 2]).await.unwrap(), Outcome::Succeeded);
    }
    for (script, version, protocols, part) in [
        (SCRIPT.to_owned(), "1.0", vec![1], "with the protocols [1]"),
        (
            SCRIPT.replace("\"version\":\"1.0\"", "\"version\":\"1\""),
            "1.0",
            vec![2],
            "reports version 1 ",
        ),
        (
            SCRIPT.replace("\"version\":\"1.0\"", "\"version\":\"2.0\""),
            "1.0",
            vec![2],
            "reports version 2.0",
        ),
    ] {
        match result(&script, version, protocols).await {
            Err(PluginError::Unverified(why)) => assert!(why.contains(part), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_plugin_gets_no_variable_of_the_agent() {
    // given a variable in the environment of this process
    let (runner, host) = (TestRunner::new(), host_platform().unwrap());
    let script = SCRIPT.replacen("#!/bin/sh\n", "#!/bin/sh\nenv >&2\n", 1);
    assert_ne!(script, SCRIPT);
    assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok());
    let plugin = published_as(&runner, &script, &key(1), &host, |_| {});
    let (result, record) = runner.job(&spec(plugin)).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
    assert!(record.has("HOME=") && record.has("PATH="), "{:?}", record.lines);
    assert!(!record.has("CARGO_MANIFEST_DIR"), "{:?}", record.lines);
}

#[tokio::test]
async fn an_artifact_that_exceeds_its_signed_size_is_refused() {
    let (runner, host) = (TestRunner::new(), host_platform().unwrap());
    let mut plugin = published(&runner, &key(1), &host, |_| {});
    plugin.artifact.as_mut().unwrap().size -= 1;
    let (result, record) = runner.job(&spec(plugin)).await;
    match result {
        Err(PluginError::Refused(why)) => assert!(why.contains("it exceeds the"), "{why}"),
        other => panic!("{other:?} {:?}", record.lines),
    }
    assert!(record.children.is_empty());
}

#[tokio::test]
async fn an_oversized_envelope_is_refused() {
    let (runner, host) = (TestRunner::new(), host_platform().unwrap());
    let envelope = vec![b' '; usize::try_from(ENVELOPE_LIMIT).unwrap() + 1];
    let plugin = stored(&runner, SCRIPT, &envelope, &host);
    let (result, record) = runner.job(&spec(plugin)).await;
    match result {
        Err(PluginError::Refused(why)) => assert!(why.contains("is too large"), "{why}"),
        other => panic!("{other:?} {:?}", record.lines),
    }
    assert!(record.children.is_empty());
}

#[tokio::test]
async fn a_damaged_executable_on_the_host_never_runs() {
    let (runner, host) = (TestRunner::new(), host_platform().unwrap());
    let plugin = published(&runner, &key(1), &host, |_| {});
    let blobs = fs::read_dir(runner.at("artifacts").join("blobs/sha256")).unwrap();
    let script = blobs.map(|blob| blob.unwrap().path());
    let script =
        script.into_iter().find(|path| fs::read(path).unwrap().starts_with(b"#!")).unwrap();
    let damaged = String::from_utf8(fs::read(&script).unwrap()).unwrap().replace("x >", "y >");
    fs::write(&script, damaged).unwrap();
    // The runner quarantines the blob and pulls it again until the test cancels the job.
    let (result, record) = runner.job_until(&spec(plugin), "the runner pulls the blob again").await;
    assert_eq!(result.unwrap(), Outcome::Cancelled { forced: false }, "{:?}", record.lines);
    assert!(record.children.is_empty() && !script.exists());
}

#[tokio::test]
async fn a_plan_is_applied_only_by_the_plugin_that_made_it() {
    // given two executables that their publisher signed with the same name and version
    let (runner, host) = (TestRunner::new(), host_platform().unwrap());
    let plugin = published(&runner, &key(1), &host, |_| {});
    let script = format!("{SCRIPT}# another executable\n");
    let other = published_as(&runner, &script, &key(1), &host, |_| {});
    let (result, record) = runner.job(&spec(plugin.clone())).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
    let approved = record.plan.map(|plan| plan.digest);
    let apply = |plugin: &PluginRef| JobSpec {
        kind: JobKind::Apply,
        plan: approved.clone(),
        ..spec(plugin.clone())
    };
    // when the other one applies the plan, then the plan is stale
    let (result, record) = runner.job(&apply(&other)).await;
    match result {
        Err(PluginError::PlanStale(why)) => {
            assert!(why.contains("the plugin has changed"), "{why}")
        }
        other => panic!("{other:?} {:?}", record.lines),
    }
    // when the same one applies it, then it succeeds, and only once
    let (result, record) = runner.job(&apply(&plugin)).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
    let (result, _) = runner.job(&apply(&plugin)).await;
    assert!(matches!(result, Err(PluginError::PlanStale(_))), "{result:?}");
}

#[tokio::test]
async fn a_manifest_with_two_sources_of_a_plugin_is_refused() {
    let (runner, host) = (TestRunner::new(), host_platform().unwrap());
    let mut plugin = published(&runner, &key(1), &host, |_| {});
    plugin.digest = Some(oci_layout::sha256(SCRIPT.as_bytes()));
    for kind in [JobKind::Plan, JobKind::Build] {
        let (result, record) = runner.job(&JobSpec { kind, ..spec(plugin.clone()) }).await;
        match result {
            Err(PluginError::Refused(why)) => assert!(why.contains("names both"), "{why}"),
            other => panic!("{other:?} {:?}", record.lines),
        }
        assert!(record.children.is_empty());
    }
}
