//! Encryption and decryption through the public interface.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]
use std::convert::Infallible;

use domain::ids::{ExecutionId, InstallId, JobId};
use install_keys::{
    ComponentData, ComponentKeys, Consumer, DigestUse, Error, Fence, InstallKeys, KeyedDigest, Of,
    Plan, Rescue, Seed, State, Value, Writer,
    format::{CHUNK, HEADER_MAX, TAG, signed_len},
    os_rng,
};
use proptest::prelude::*;
use rand_core::{TryCryptoRng, TryRng};

/// Source of the same bytes each time, for the golden files.
struct Counter(u8);

impl TryRng for Counter {
    type Error = Infallible;
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_be_bytes(bytes))
    }
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_be_bytes(bytes))
    }
    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), Infallible> {
        for byte in to {
            *byte = self.0;
            self.0 = self.0.wrapping_add(1);
        }
        Ok(())
    }
}

impl TryCryptoRng for Counter {}

const OF: Of<'static> = Of { log_id: "01LOG", install: InstallId(ulid::Ulid(7)) };
const OTHER: Of<'static> = Of { log_id: "01LOG", install: InstallId(ulid::Ulid(8)) };
const FENCE: Fence = Fence { epoch: 1, position: 40 };
const STATE: State<'static> =
    State { of: OF, component: "database", lineage: "3f2c", serial: 9, fence: FENCE };
const PLAN: Plan<'static> =
    Plan { of: OF, component: "database", job: JobId(ulid::Ulid(3)), sha256: [5; 32] };
const RESCUE: Rescue<'static> =
    Rescue { of: OF, component: "database", execution: ExecutionId(ulid::Ulid(4)) };
const CONSUMERS: &[Consumer<'static>] = &[
    Consumer { component: "web", job_kind: "apply" },
    Consumer { component: "web", job_kind: "plan" },
];
const VALUE: Value<'static> = Value {
    of: OF,
    id: "val_1",
    name: "api_token",
    consumers: CONSUMERS,
    writer: Writer::PublicKeyHolder,
};

fn install(byte: u8) -> InstallKeys {
    InstallKeys::new(&Seed::from_bytes(&[byte; 32]), 1)
}

fn keys() -> ComponentKeys {
    install(1).component("database")
}

fn encrypt(plaintext: &[u8]) -> Vec<u8> {
    keys().encrypt(&ComponentData::State(STATE), plaintext, &mut os_rng()).unwrap()
}

fn decrypt(ciphertext: &[u8]) -> Result<Vec<u8>, Error> {
    keys().decrypt(&ComponentData::State(STATE), ciphertext).map(|plain| plain.to_vec())
}

/// Bytes that differ from chunk to chunk.
fn text(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn data_of_every_length_is_restored() {
    for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 17] {
        let ciphertext = encrypt(&text(length));
        assert_eq!(ciphertext.len(), signed_len(length), "{length}");
        assert_eq!(decrypt(&ciphertext).unwrap(), text(length), "{length}");
    }
}

#[test]
fn the_same_data_is_encrypted_differently_each_time() {
    assert_ne!(encrypt(b"state"), encrypt(b"state"));
}

#[test]
fn every_changed_byte_is_detected() {
    let ciphertext = encrypt(b"state");
    for at in 0..ciphertext.len() {
        for bit in [1, 0x80] {
            let mut changed = ciphertext.clone();
            changed[at] ^= bit;
            assert!(decrypt(&changed).is_err(), "byte {at}");
        }
    }
}

#[test]
fn every_truncation_is_detected() {
    let ciphertext = encrypt(b"state");
    for length in 0..ciphertext.len() {
        let error = decrypt(&ciphertext[..length]).unwrap_err();
        assert!(matches!(error, Error::Truncated | Error::Changed), "{length}: {error}");
    }
    let long = encrypt(&text(3 * CHUNK));
    for chunks in 0..3 {
        let cut = &long[..HEADER_MAX + chunks * (CHUNK + TAG)];
        assert_eq!(decrypt(cut).unwrap_err(), Error::Truncated, "{chunks} chunks");
    }
}

#[test]
fn chunks_cannot_be_reordered_repeated_removed_or_exchanged() {
    let (one, two) = (encrypt(&text(3 * CHUNK)), encrypt(&text(3 * CHUNK)));
    let chunk = |of: &[u8], number: usize| {
        let start = HEADER_MAX + number * (CHUNK + TAG);
        of[start..start + CHUNK + TAG].to_vec()
    };
    let (header, other_header) = (&one[..HEADER_MAX], &two[..HEADER_MAX]);
    let join = |header: &[u8], order: &[usize]| {
        let chunks: Vec<Vec<u8>> = order.iter().map(|number| chunk(&one, *number)).collect();
        [header, &chunks.concat()].concat()
    };
    assert!(decrypt(&join(header, &[0, 1, 2])).is_ok());
    for order in [&[1, 0, 2][..], &[0, 2, 1], &[0, 0, 2], &[0, 2], &[2], &[0, 1, 2, 2]] {
        assert_eq!(decrypt(&join(header, order)).unwrap_err(), Error::Changed, "{order:?}");
    }
    assert_eq!(decrypt(&join(other_header, &[0, 1, 2])).unwrap_err(), Error::Changed);
    let longer = [&one[..], b"more"].concat();
    assert_eq!(decrypt(&longer).unwrap_err(), Error::Changed);
}

#[test]
fn every_field_of_the_associated_data_matters() {
    let other = |change: fn(&mut State<'static>)| {
        let mut state = STATE;
        change(&mut state);
        ComponentData::State(state)
    };
    let states = [
        other(|state| state.of.log_id = "01LOH"),
        other(|state| state.of = OTHER),
        other(|state| state.lineage = "3f2d"),
        other(|state| state.serial = 10),
        other(|state| state.fence.epoch = 2),
        other(|state| state.fence.position = 41),
    ];
    let plans = [
        ComponentData::Plan(Plan { of: OTHER, ..PLAN }),
        ComponentData::Plan(Plan { job: JobId(ulid::Ulid(4)), ..PLAN }),
        ComponentData::Plan(Plan { sha256: [6; 32], ..PLAN }),
    ];
    let rescues = [
        ComponentData::Rescue(Rescue { of: OTHER, ..RESCUE }),
        ComponentData::Rescue(Rescue { execution: ExecutionId(ulid::Ulid(5)), ..RESCUE }),
    ];
    let all =
        [ComponentData::State(STATE), ComponentData::Plan(PLAN), ComponentData::Rescue(RESCUE)];
    let expected: Vec<_> = [&all[..], &states, &plans, &rescues].concat();
    for written in all {
        let ciphertext = keys().encrypt(&written, b"text", &mut os_rng()).unwrap();
        for read in &expected {
            let result = keys().decrypt(read, &ciphertext).map(|plain| plain.to_vec());
            let is_same = *read == written;
            assert_eq!(result, if is_same { Ok(b"text".to_vec()) } else { Err(Error::Moved) });
        }
    }
}

#[test]
fn every_field_of_a_value_matters_but_not_the_order_of_consumers() {
    let mut rng = os_rng();
    let public = install(1).public();
    let ciphertext = public.encrypt(&VALUE, b"secret", &mut rng).unwrap();
    let reversed: Vec<_> = CONSUMERS.iter().rev().copied().collect();
    let same = Value { consumers: &reversed, ..VALUE };
    assert_eq!(**install(1).decrypt(&same, &ciphertext).unwrap(), *b"secret");
    let consumer = |component, job_kind| [Consumer { component, job_kind }, CONSUMERS[1]];
    let others = [
        Value { of: OTHER, ..VALUE },
        Value { id: "val_2", ..VALUE },
        Value { name: "api_tokens", ..VALUE },
        // The same characters, divided differently.
        Value { id: "val_1a", name: "pi_token", ..VALUE },
        Value { consumers: &[], ..VALUE },
        Value { consumers: &CONSUMERS[1..], ..VALUE },
        Value { consumers: &consumer("api", "apply"), ..VALUE },
        Value { consumers: &consumer("web", "action"), ..VALUE },
        Value { writer: Writer::Install, ..VALUE },
    ];
    for other in others {
        assert_eq!(install(1).decrypt(&other, &ciphertext).unwrap_err(), Error::Moved, "{other:?}");
    }
}

#[test]
fn a_party_with_the_public_key_cannot_write_for_the_install() {
    let mut rng = os_rng();
    let signed = Value { writer: Writer::Install, ..VALUE };
    let public = install(1).public();
    assert_eq!(public.encrypt(&signed, b"x", &mut rng).unwrap_err(), Error::BadSignature);
    let ciphertext = install(1).encrypt(&signed, b"x", &mut rng).unwrap();
    let mut forged = ciphertext.clone();
    // The signature is the last field of the header.
    forged[HEADER_MAX - 1] ^= 1;
    assert_eq!(install(1).decrypt(&signed, &forged).unwrap_err(), Error::BadSignature);
    assert_eq!(install(1).decrypt(&VALUE, &ciphertext).unwrap_err(), Error::Moved);
}

#[test]
fn keys_of_another_install_component_or_generation_do_not_decrypt() {
    let seed = Seed::from_bytes(&[1; 32]);
    let (first, second) = (InstallKeys::new(&seed, 1), InstallKeys::new(&seed, 2));
    let data = ComponentData::State(STATE);
    let old = first.component("database").encrypt(&data, b"x", &mut os_rng()).unwrap();
    let new = second.component("database").encrypt(&data, b"x", &mut os_rng()).unwrap();
    // A later generation reads what an earlier one wrote, but not the reverse.
    assert_eq!(**second.component("database").decrypt(&data, &old).unwrap(), *b"x");
    let error = first.component("database").decrypt(&data, &new).unwrap_err();
    assert_eq!(error, Error::WrongGeneration { found: 2, own: 1 });
    let foreign = install(2).component("database");
    assert_eq!(foreign.decrypt(&data, &old).unwrap_err(), Error::WrongKey);

    let web = first.component("web");
    let error = web.decrypt(&data, &old).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"the keys belong to component "web", but the data to "database""#
    );
    let as_web = ComponentData::State(State { component: "web", ..STATE });
    assert_eq!(web.decrypt(&as_web, &old).unwrap_err(), Error::WrongKey);
    // The keys of a component do not decrypt the values of the install.
    let value = first.public().encrypt(&VALUE, b"secret", &mut os_rng()).unwrap();
    assert_eq!(web.decrypt(&as_web, &value).unwrap_err(), Error::WrongKey);
}

#[test]
fn other_files_and_later_versions_are_not_in_a_known_format() {
    let mut later = encrypt(b"x");
    later[8] = 2;
    for bytes in [&later[..], br#"{"version":4,"serial":1}"#, b"STEADEND"] {
        assert_eq!(decrypt(bytes).unwrap_err(), Error::UnsupportedFormat);
    }
}

#[test]
fn the_order_of_a_shim_restores_the_keys_and_prints_no_secret() {
    let order = serde_json::to_string(&keys()).unwrap();
    let read: ComponentKeys = serde_json::from_str(&order).unwrap();
    assert_eq!(**read.decrypt(&ComponentData::State(STATE), &encrypt(b"x")).unwrap(), *b"x");
    let secret = serde_json::from_str::<serde_json::Value>(&order).unwrap()["secret"].clone();
    let secret = secret.as_str().unwrap().to_string();
    assert_eq!(secret.len(), 64);
    let printed = format!("{:?} {:?} {:?}", keys(), install(1), Seed::from_bytes(&[0xab; 32]));
    assert!(!printed.contains(&secret) && !printed.contains("abab"), "{printed}");
    let broken = order.replace(&secret, &secret[1..]);
    let error = serde_json::from_str::<ComponentKeys>(&broken).unwrap_err().to_string();
    assert!(!error.contains(&secret[1..]), "{error}");
}

#[test]
fn a_keyed_digest_depends_on_key_purpose_and_generation() {
    let digest = keys().digest(DigestUse::Plaintext, b"state");
    assert_eq!(digest, keys().digest(DigestUse::Plaintext, b"state"));
    let others = [
        keys().digest(DigestUse::Plaintext, b"states"),
        keys().digest(DigestUse::Name, b"state"),
        keys().digest(DigestUse::Log, b"state"),
        install(1).digest(DigestUse::Plaintext, b"state"),
        install(1).component("web").digest(DigestUse::Plaintext, b"state"),
        install(2).component("database").digest(DigestUse::Plaintext, b"state"),
    ];
    assert!(others.iter().all(|other| *other != digest));
    let later = InstallKeys::new(&Seed::from_bytes(&[1; 32]), 2).component("database");
    assert!(later.matches(&digest, DigestUse::Plaintext, b"state"));
    assert!(!later.matches(&digest, DigestUse::Plaintext, b"other"));
    let text = digest.to_string();
    assert_eq!(text.parse::<KeyedDigest>().unwrap(), digest);
    for broken in ["", "hmac-sha256:1:", &text.to_uppercase(), &text.replace(":1:", ":01:")] {
        assert!(broken.parse::<KeyedDigest>().is_err(), "{broken}");
    }
}

#[test]
fn a_fingerprint_covers_keys_generation_install_and_log() {
    let seed = Seed::from_bytes(&[1; 32]);
    let fingerprint = |keys: &InstallKeys, of: &Of<'_>| keys.public().fingerprint(of);
    let own = fingerprint(&install(1), &OF);
    assert_eq!(own.to_string().parse(), Ok(own));
    let others = [
        fingerprint(&install(2), &OF),
        fingerprint(&InstallKeys::new(&seed, 2), &OF),
        fingerprint(&install(1), &OTHER),
        fingerprint(&install(1), &Of { log_id: "01LOH", ..OF }),
    ];
    assert!(others.iter().all(|other| *other != own));
}

/// 100 MiB in parts: neither direction holds more than a chunk.
#[test]
fn large_data_is_processed_in_parts() {
    const PARTS: usize = 100;
    let (keys, data, part) = (keys(), ComponentData::State(STATE), text(1024 * 1024));
    let mut ciphertext = Vec::new();
    let mut encryptor = keys.encryptor(&data, &mut os_rng(), &mut ciphertext).unwrap();
    let mut decryptor = keys.decryptor(&data).unwrap();
    let (mut plaintext, mut restored) = (Vec::new(), 0);
    for _ in 0..PARTS {
        encryptor.update(&part, &mut ciphertext).unwrap();
        assert!(ciphertext.len() <= part.len() + part.len() / CHUNK * TAG + HEADER_MAX);
        decryptor.update(&ciphertext, &mut plaintext).unwrap();
        ciphertext.clear();
        for byte in plaintext.drain(..) {
            assert_eq!(byte, part[restored % part.len()]);
            restored += 1;
        }
    }
    encryptor.finish(&mut ciphertext).unwrap();
    decryptor.update(&ciphertext, &mut plaintext).unwrap();
    decryptor.finish(&mut plaintext).unwrap();
    assert_eq!(restored + plaintext.len(), PARTS * part.len());
}

/// A change of the format or of the derivation of keys makes stored data unreadable.
#[test]
fn format_and_derivation_match_the_golden_file() {
    let install = install(1);
    let public = install.public();
    let state = keys().encrypt(&ComponentData::State(STATE), b"{\"serial\":9}", &mut Counter(0));
    let value = public.encrypt(&VALUE, b"secret", &mut Counter(0)).unwrap();
    let lines = [
        ("encryption key", public.encryption_hex()),
        ("signing key", public.signing_hex()),
        ("fingerprint", public.fingerprint(&OF).to_string()),
        ("digest", install.digest(DigestUse::Name, b"api_token").to_string()),
        ("state", hex::encode(state.unwrap())),
        ("value", hex::encode(value)),
    ];
    let text: String = lines.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden.txt");
    let file = std::fs::read_to_string(path).unwrap();
    // Data that an earlier version wrote stays readable, also when the file is regenerated.
    let stored = file.lines().find_map(|line| line.strip_prefix("state: ")).unwrap();
    assert_eq!(decrypt(&hex::decode(stored).unwrap()).unwrap(), b"{\"serial\":9}");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn data_is_restored_however_it_is_divided(
        length in 0..3 * CHUNK + 100,
        parts in prop::collection::vec(1..CHUNK + 5, 1..8),
    ) {
        let (keys, data, plain) = (keys(), ComponentData::State(STATE), text(length));
        let mut ciphertext = Vec::new();
        let mut encryptor = keys.encryptor(&data, &mut os_rng(), &mut ciphertext).unwrap();
        let mut rest = &plain[..];
        for part in parts.iter().cycle() {
            let (now, later) = rest.split_at(rest.len().min(*part));
            encryptor.update(now, &mut ciphertext).unwrap();
            rest = later;
            if rest.is_empty() { break }
        }
        encryptor.finish(&mut ciphertext).unwrap();
        let (mut decryptor, mut restored) = (keys.decryptor(&data).unwrap(), Vec::new());
        let mut rest = &ciphertext[..];
        for part in parts.iter().rev().cycle() {
            let (now, later) = rest.split_at(rest.len().min(*part));
            decryptor.update(now, &mut restored).unwrap();
            rest = later;
            if rest.is_empty() { break }
        }
        decryptor.finish(&mut restored).unwrap();
        prop_assert_eq!(restored, plain);
    }

    #[test]
    fn a_changed_or_cut_ciphertext_is_detected(
        length in 0..3 * CHUNK,
        at in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let ciphertext = encrypt(&text(length));
        let at = at.index(ciphertext.len());
        let mut changed = ciphertext.clone();
        changed[at] ^= 1 << bit;
        prop_assert!(decrypt(&changed).is_err());
        let error = decrypt(&ciphertext[..at]).unwrap_err();
        prop_assert!(matches!(error, Error::Truncated | Error::Changed));
    }

    #[test]
    fn arbitrary_bytes_are_no_data(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(decrypt(&bytes).is_err());
        let with_start = [b"STEADENC\x01\x01\x01", &bytes[..]].concat();
        prop_assert!(decrypt(&with_start).is_err());
    }
}
