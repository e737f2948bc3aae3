use super::*;
use crate::testing::{examples, given, replay, transitions};

fn version(version: &str, digest: u8) -> PluginVersion {
    PluginVersion {
        name: "vault".into(),
        version: version.into(),
        digest: format!("sha256:{digest:064x}").parse().unwrap(),
        size_bytes: 12_345_678,
        platforms: vec!["linux/amd64".into(), "linux/arm64".into()],
        publisher: format!("{:064x}", 5),
    }
}
fn publish(name: &str, digest: u8) -> PluginCommand {
    PluginCommand::Publish(version(name, digest))
}
fn published(name: &str, digest: u8) -> PluginEvent {
    PluginEvent::Published(version(name, digest))
}

#[test]
fn each_version_is_published_once() {
    given::<Plugin>([]).when(publish("1.0", 1)).then([published("1.0", 1)]);
    given::<Plugin>([published("1.0", 1)]).when(publish("1.1", 2)).then([published("1.1", 2)]);
    given::<Plugin>([published("1.0", 1)]).when(publish("1.0", 1)).then_nothing();
    let two = [published("1.0", 1), published("1.1", 2)];
    given::<Plugin>(two).when(publish("1.0", 1)).then_nothing();
}

#[test]
fn a_published_version_never_changes() {
    let digest = version("1.0", 1).digest;
    let other = PluginError::OtherContent { name: "vault".into(), version: "1.0".into(), digest };
    given::<Plugin>([published("1.0", 1)]).when(publish("1.0", 2)).then_rejected(other);
}

#[test]
fn the_newest_version_is_the_last_published() {
    let state = replay::<Plugin>([published("2.0", 1), published("1.9", 2)]);
    assert_eq!(state.newest().map(PluginVersion::pin), Some(version("1.9", 2).pin()));
    assert_eq!(replay::<Plugin>([]).newest(), None);
}

#[test]
fn every_event_has_an_example() {
    examples::<Plugin>(published("1.0", 1), |event| match event {
        PluginEvent::Published(_) => None,
    });
}

#[test]
fn transitions_match_the_golden_table() {
    transitions::<Plugin>(
        vec![("new", vec![]), ("version 1.0", vec![published("1.0", 1)])],
        vec![
            ("publish: 1.0", publish("1.0", 1)),
            ("publish: other content", publish("1.0", 2)),
            ("publish: 1.1", publish("1.1", 3)),
        ],
    );
}
