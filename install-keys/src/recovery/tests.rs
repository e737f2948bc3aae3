#![allow(clippy::unwrap_used, reason = "a failed test panics")]
use super::*;

const ONE: &str = "AGE-SECRET-KEY-13ZDW9XYMMA2ZTKZMCKGWU39GHPLXFVFNCG0XHGWLWXYHR0WVYPZSJ9DMV7";
const ONE_PUBLIC: &str = "age1mz625ny4ugt7hk07qml93y7wte4hd28ftwejjy3elg3ux59jk5yqsys3dy";
const OTHER: &str = "AGE-SECRET-KEY-1UTKZ4G5ZCVHH2Z38G2484L3TV7PXF877GWM0TQ0YJ6QP9HSCPCDQMN6GKW";
const OTHER_PUBLIC: &str = "age104e6ugjpd7xcv305fz25j4kn29q5fxaqvrztfesfcykx0x70gazsyhzjwf";
/// Written by age 1.1.1: the seed of [`keys`] for the first recipient.
const BY_AGE: &str = "-----BEGIN AGE ENCRYPTED FILE-----
YWdlLWVuY3J5cHRpb24ub3JnL3YxCi0+IFgyNTUxOSBmc0NMZUpnV2cySHBaRFlJ
d3ExM3lvT1Z2WXlyRVFvVVphZExGM2tYQlNRCkFCZmQrZEN4a2hOMS9PWlpERXox
OHFzQ29QVnd5UFFyV3R1UmRXZkNMTTgKLS0tIDFYb3A4UUZLVkgvTERVeC9WTTNr
TlR5cTM5NEpIZFZLZWNTOEZKK25QbWsK8mdz0vpTvebVUxIgWE/QSu8ljnsWGNpg
6fEse/7WkYDhChBjLg/Lg91B2q1ck52otCoJA00Id0xiADbSmDjXCwN27ZWoJS3e
RMgYQNX5NMr3g7PDRVOWVKIDXdS8ioePTAYC
-----END AGE ENCRYPTED FILE-----
";

fn install(number: u128) -> InstallId {
    InstallId(ulid::Ulid(number))
}

fn of() -> Of<'static> {
    Of { log_id: "log", install: install(1) }
}

fn keys(generation: u32) -> InstallKeys {
    InstallKeys::new(&Seed::from_bytes(&[7; 32]), generation)
}

fn identity(text: &str) -> RecoveryIdentity {
    RecoveryIdentity::parse(text).unwrap()
}

fn wrapped(keys: &InstallKeys) -> WrappedSeed {
    keys.wrap_seed(&of(), &ONE_PUBLIC.parse().unwrap(), &mut crate::os_rng()).unwrap()
}

fn refused(wrapped: &WrappedSeed) -> RecoveryError {
    let expected = keys(1).public().fingerprint(&of());
    wrapped.recover(install(1), &expected, &identity(ONE)).unwrap_err()
}

#[test]
fn the_holder_of_the_identity_recovers_the_seed() {
    let wrapped = wrapped(&keys(3));
    let text = serde_json::to_string(&wrapped).unwrap();
    assert!(!text.contains(&"07".repeat(8)), "{text}");
    let read: WrappedSeed = serde_json::from_str(&text).unwrap();
    let expected = keys(3).public().fingerprint(&of());
    let recovered = read.recover(install(1), &expected, &identity(ONE)).unwrap();
    assert_eq!((recovered.seed.expose(), recovered.generation), (&[7; 32], 3));
    assert_eq!(recovered.log_id, "log");
    assert!(read.is_current(&of(), &keys(3)));
    assert!(!read.is_current(&of(), &keys(4)));
    assert!(!read.is_current(&Of { log_id: "other", ..of() }, &keys(3)));
}

#[test]
fn a_file_of_the_standard_tool_is_read() {
    let line = age::decrypt(&identity(ONE).0, BY_AGE).unwrap();
    assert_eq!(line.as_slice(), format!("{} 1\n", "07".repeat(32)).as_bytes());
    let error = age::decrypt(&identity(OTHER).0, BY_AGE).unwrap_err();
    assert_eq!(error, RecoveryError::Changed);
}

#[test]
fn the_standard_tool_decrypts_a_wrapped_seed() {
    use std::process::Command;
    if Command::new("age").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI must have age: apt-get install age");
        eprintln!("SKIPPED: this host has no age");
        return;
    }
    let dir = std::env::temp_dir().join(format!("stead-age-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("identity"), ONE).unwrap();
    std::fs::write(dir.join("seed.age"), wrapped(&keys(1)).seed).unwrap();
    let mut age = Command::new("age");
    let output = age.current_dir(&dir).args(["-d", "-i", "identity", "seed.age"]).output().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, format!("{} 1\n", "07".repeat(32)).as_bytes());
}

#[test]
fn a_wrong_key_install_or_generation_is_refused_by_name() {
    let ours = wrapped(&keys(1));
    let expected = keys(1).public().fingerprint(&of());
    let error = ours.recover(install(1), &expected, &identity(OTHER)).unwrap_err();
    assert_eq!(error, RecoveryError::WrongIdentity(ONE_PUBLIC.into()));
    let error = ours.recover(install(2), &expected, &identity(ONE)).unwrap_err();
    assert_eq!(error, RecoveryError::OtherInstall(install(1)));
    // An older generation is a valid wrapped seed of this install, but not the expected one.
    let newer = keys(2).public().fingerprint(&of());
    let error = ours.recover(install(1), &newer, &identity(ONE)).unwrap_err();
    assert_eq!(error, RecoveryError::OtherFingerprint(expected));
    // The customer has the fingerprint of the first host only, and the second one was lost as well.
    let fingerprint = keys(3).public().fingerprint(&of());
    let later = RecoveryError::LaterGeneration { generation: 3, expected: 1, fingerprint };
    assert_eq!(refused(&wrapped(&keys(3))), later);
    let far = refused(&wrapped(&keys(u32::MAX)));
    assert!(matches!(far, RecoveryError::OtherFingerprint(_)), "{far}");
    // The server knows the recipient and can wrap a seed of its own.
    let theirs = InstallKeys::new(&Seed::from_bytes(&[9; 32]), 1);
    let found = theirs.public().fingerprint(&of());
    assert_eq!(refused(&wrapped(&theirs)), RecoveryError::OtherFingerprint(found));
}

#[test]
fn a_moved_changed_or_truncated_seed_is_refused_by_name() {
    let ours = wrapped(&keys(1));
    let moved = |change: fn(&mut WrappedSeed)| {
        let mut changed = ours.clone();
        change(&mut changed);
        refused(&changed)
    };
    assert_eq!(moved(|it| it.log_id = "other".into()), RecoveryError::BadSignature);
    assert_eq!(moved(|it| it.generation = 2), RecoveryError::BadSignature);
    assert_eq!(moved(|it| it.signature.clear()), RecoveryError::BadSignature);
    assert_eq!(moved(|it| it.format = 2), RecoveryError::UnsupportedFormat(2));
    // The line is the same, but the install did not sign this file.
    assert_eq!(moved(|it| it.seed = BY_AGE.into()), RecoveryError::BadSignature);
    let other = |it: &mut WrappedSeed| it.recipient = OTHER_PUBLIC.into();
    assert_eq!(moved(other), RecoveryError::WrongIdentity(OTHER_PUBLIC.into()));
    assert_eq!(moved(|it| it.seed.truncate(200)), RecoveryError::Truncated);
    assert_eq!(moved(|it| it.seed.clear()), RecoveryError::Truncated);
    // A wrapped seed of another install, under the name of this one.
    let elsewhere = Of { install: install(2), ..of() };
    let recipient = ONE_PUBLIC.parse().unwrap();
    let mut swapped = keys(1).wrap_seed(&elsewhere, &recipient, &mut crate::os_rng()).unwrap();
    swapped.install = install(1);
    assert_eq!(refused(&swapped), RecoveryError::BadSignature);
}

#[test]
fn recipients_and_identities_are_checked() {
    let mut typo = ONE_PUBLIC.to_owned();
    typo.replace_range(10..11, "q");
    let upper = ONE_PUBLIC.to_uppercase();
    for invalid in ["", "age1", &typo, &upper, ONE, &format!("{ONE_PUBLIC}q")] {
        assert_eq!(invalid.parse::<Recipient>(), Err(RecoveryError::InvalidRecipient), "{invalid}");
    }
    let file = format!("# created: 2026-11-28\n# public key: {ONE_PUBLIC}\n{ONE}\n");
    let read = identity(&file);
    assert_eq!(age::public(&read.0), ONE_PUBLIC.parse::<Recipient>().unwrap().key);
    assert_eq!(format!("{read:?}"), "RecoveryIdentity(…)");
    for invalid in ["", ONE_PUBLIC, &ONE.to_lowercase(), &format!("{ONE}\n{OTHER}")] {
        assert!(RecoveryIdentity::parse(invalid).is_err(), "{invalid}");
    }
}
