use domain::state_version::StateVersion;
use install_keys::{CryptoRng, Seed};
use schemas::manifest::Fence;

use super::*;

const SECRET: &str = "AGE-SECRET-KEY-13ZDW9XYMMA2ZTKZMCKGWU39GHPLXFVFNCG0XHGWLWXYHR0WVYPZSJ9DMV7";
const OTHER: &str = "AGE-SECRET-KEY-1UTKZ4G5ZCVHH2Z38G2484L3TV7PXF877GWM0TQ0YJ6QP9HSCPCDQMN6GKW";
const RECIPIENT: &str = "age1mz625ny4ugt7hk07qml93y7wte4hd28ftwejjy3elg3ux59jk5yqsys3dy";
const OTHER_RECIPIENT: &str = "age104e6ugjpd7xcv305fz25j4kn29q5fxaqvrztfesfcykx0x70gazsyhzjwf";
const RUNNER: RunnerId = RunnerId(ulid::Ulid(5));

fn of() -> Of<'static> {
    Of { log_id: "log", install: InstallId(ulid::Ulid(1)) }
}

fn rng() -> impl CryptoRng {
    install_keys::os_rng()
}

fn keys(generation: u32) -> InstallKeys {
    InstallKeys::new(&Seed::from_bytes(&[7; 32]), generation)
}

fn wrapped(of: &Of<'_>, keys: &InstallKeys) -> OfferedSeed {
    let wrapped = keys.wrap_seed(of, &RECIPIENT.parse().unwrap(), &mut rng()).unwrap();
    OfferedSeed { runner: RUNNER, wrapped: serde_json::to_string(&wrapped).unwrap() }
}

fn head(serial: u64) -> StateHead {
    let (lineage, digest) = ("l-1".into(), format!("hmac-sha256:1:{serial:064x}"));
    let fence = Fence { epoch: 1, position: 9 };
    StateHead { lineage, serial, fence, digest, is_empty: false }
}

fn offer(seeds: Vec<OfferedSeed>) -> RecoveryOffer {
    let states = [("api".to_owned(), head(7)), ("sandbox".to_owned(), head(2))].into();
    let (install, log_id) = (of().install, of().log_id.into());
    RecoveryOffer { install, log_id, seeds, states, awaited: BTreeMap::new() }
}

fn accepted(component: &str, serial: u64) -> AcceptedHead {
    let head = head(serial);
    format!("{component}={}/{serial}/{}", head.lineage, head.digest).parse().unwrap()
}

fn request(secret: &str, generation: u32) -> Request {
    Request {
        identity: RecoveryIdentity::parse(secret).unwrap(),
        fingerprint: keys(generation).public().fingerprint(&of()),
        accepted: vec![accepted("api", 7), accepted("sandbox", 2)],
        lost: vec![],
    }
}

fn refusal(offer: &RecoveryOffer, request: &Request) -> String {
    format!("{:#}", Recovered::of(offer, request).unwrap_err())
}

#[test]
fn the_seed_with_the_fingerprint_is_recovered_for_its_recipient_alone() {
    // Of another recipient and another runner, broken, and right.
    let other: Recipient = OTHER_RECIPIENT.parse().unwrap();
    let for_other = keys(1).wrap_seed(&of(), &other, &mut rng()).unwrap();
    let for_other = serde_json::to_string(&for_other).unwrap();
    let seeds = vec![
        OfferedSeed { runner: RunnerId(ulid::Ulid(6)), wrapped: "{".into() },
        OfferedSeed { runner: RUNNER, wrapped: for_other },
        wrapped(&of(), &InstallKeys::new(&Seed::from_bytes(&[8; 32]), 1)),
        wrapped(&of(), &keys(1)),
    ];
    let recovered = Recovered::of(&offer(seeds), &request(SECRET, 1)).unwrap();
    assert_eq!(recovered.former, RUNNER);
    assert_eq!(recovered.former_keys.public(), keys(1).public());
    assert_eq!(recovered.former_keys.successor().public(), keys(2).public());
    assert_eq!(recovered.recipient.to_string(), RECIPIENT);
    // The customer may have removed it: the server can keep its wrapped seed.
    assert_eq!(recovered.others, [other]);
    assert_eq!(recovered.accepted.len(), 2);
}

#[test]
fn a_wrong_seed_is_refused_by_name() {
    let other_install = Of { install: InstallId(ulid::Ulid(2)), ..of() };
    let other_log = Of { log_id: "other", ..of() };
    let own_seed = InstallKeys::new(&Seed::from_bytes(&[8; 32]), 1);
    let good = wrapped(&of(), &keys(1));
    let cut = |to: usize| OfferedSeed { wrapped: good.wrapped[..to].into(), ..good.clone() };
    let mut document: serde_json::Value = serde_json::from_str(&good.wrapped).unwrap();
    let age = document["seed"].as_str().unwrap().to_owned();
    document["seed"] = age[..age.len() / 2].into();
    let truncated = OfferedSeed { wrapped: document.to_string(), ..good.clone() };
    document["seed"] = age.into();
    document["log_id"] = "other".into();
    let moved = OfferedSeed { wrapped: document.to_string(), ..good.clone() };
    let cases = [
        (vec![], request(SECRET, 1), "has no wrapped seed of the current keys"),
        (vec![], request(SECRET, 1), "--recover-from RUNNER"),
        (vec![good.clone()], request(OTHER, 1), "wrong recovery key"),
        (vec![wrapped(&other_install, &keys(1))], request(SECRET, 1), "another install"),
        (vec![wrapped(&other_log, &keys(1))], request(SECRET, 1), "the expected fingerprint"),
        (vec![moved], request(SECRET, 1), "it was moved or changed"),
        (vec![truncated], request(SECRET, 1), "truncated"),
        (vec![cut(200)], request(SECRET, 1), "truncated or changed"),
        (vec![wrapped(&of(), &own_seed)], request(SECRET, 1), "the expected fingerprint"),
        // The customer kept the fingerprint of the second generation.
        (vec![good], request(SECRET, 2), "it is of an older generation"),
        // The customer kept the fingerprint of the first generation only.
        (
            vec![wrapped(&of(), &own_seed), wrapped(&of(), &keys(2))],
            request(SECRET, 1),
            "the expected one, but of the later generation 2",
        ),
    ];
    for (seeds, request, expected) in cases {
        let why = refusal(&offer(seeds), &request);
        assert!(why.contains(expected), "{expected}: {why}");
    }
}

#[test]
fn each_state_of_the_server_must_be_accepted_as_it_is() {
    let offer = offer(vec![wrapped(&of(), &keys(1))]);
    let with = |accepted| Request { accepted, ..request(SECRET, 1) };
    let why = refusal(&offer, &with(vec![accepted("api", 7)]));
    assert!(why.contains("--accept-head 'sandbox=l-1/2/hmac-sha256:1:"), "{why}");
    assert!(!why.contains("'api="), "{why}");
    let older = refusal(&offer, &with(vec![accepted("api", 8), accepted("sandbox", 2)]));
    assert!(older.contains("you accept serial 8 of lineage l-1 of api"), "{older}");
    assert!(older.contains("the newest state of the server is serial 7"), "{older}");
    let foreign = refusal(&offer, &with(vec![accepted("web", 1)]));
    assert!(foreign.contains("the newest state of the server is none"), "{foreign}");
    for text in ["", "api", "api=l/7", "api=l/x/d"] {
        assert!(text.parse::<AcceptedHead>().is_err(), "{text}");
    }
}

#[test]
fn a_state_that_the_lost_host_never_sent_is_given_up_explicitly() {
    let version = StateVersion { lineage: "l-1".into(), serial: 8, digest: None };
    let awaited = [("api".to_owned(), version)].into();
    let offer = RecoveryOffer { awaited, ..offer(vec![wrapped(&of(), &keys(1))]) };
    let with = |lost: &str| Request { lost: vec![lost.parse().unwrap()], ..request(SECRET, 1) };
    let why = refusal(&offer, &request(SECRET, 1));
    assert!(why.contains("--give-up-state 'api=l-1/8'"), "{why}");
    for other in ["api=l-1/9", "api=l-2/8", "sandbox=l-1/8"] {
        assert!(refusal(&offer, &with(other)).contains("--give-up-state 'api="), "{other}");
    }
    let recovered = Recovered::of(&offer, &with("api=l-1/8")).unwrap();
    let why = reason(&recovered);
    assert!(why.contains("nothing proves") && why.contains("given up: api=l-1/8;"), "{why}");
    for text in ["", "api", "api=8", "api=l/x"] {
        assert!(text.parse::<LostState>().is_err(), "{text}");
    }
}

fn options() -> EnrolmentOptions {
    EnrolmentOptions {
        mode: schemas::runner::RunnerMode::Install,
        server: "http://localhost".into(),
        // A client would try to reach the server without end. This trust creates none.
        trust: crate::tls::Trust::Pem(
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into(),
        ),
        token: String::from("token").into(),
        server_key: "00".into(),
        stack_outputs: BTreeMap::new(),
        recovery: None,
    }
}

/// Recovers, and fails at the enrolment.
async fn interrupted(data: &Data) {
    let offer = offer(vec![wrapped(&of(), &keys(1))]);
    let recovered = Recovered::of(&offer, &request(SECRET, 1)).unwrap();
    recovered.begin(data, &offer).unwrap().enrol(data, (options(), &[])).await.unwrap_err();
}

#[tokio::test]
async fn a_recovery_that_is_killed_at_any_step_continues() {
    let dir = tempfile::tempdir().unwrap();
    let data = Data::open(dir.path()).unwrap();
    let resume = async |generation| {
        let other: Recipient = OTHER_RECIPIENT.parse().unwrap();
        super::resume(&data, &request(SECRET, generation), (options(), &[other])).await
    };
    assert!(resume(1).await.unwrap().is_none());
    assert!(!has_begun(&data).unwrap());
    // Before anything else was changed: an ordinary enrolment would replace the keys.
    let offer = offer(vec![wrapped(&of(), &keys(1))]);
    Recovered::of(&offer, &request(SECRET, 1)).unwrap().begin(&data, &offer).unwrap();
    assert!(has_begun(&data).unwrap() && disable::disabled(&data).is_none());
    assert!(resume(1).await.unwrap().is_none());
    interrupted(&data).await;
    assert!(has_begun(&data).unwrap());
    assert_eq!(reported(&data, &keys(2), &of()).unwrap().len(), 1);
    // Before the keys were stored: the command begins again.
    std::fs::remove_file(data.path("keys/install")).unwrap();
    assert!(resume(1).await.unwrap().is_none());
    interrupted(&data).await;
    // After that: with another fingerprint, without a server, and after the enrolment.
    let why = resume(2).await;
    assert!(why.unwrap_err().to_string().contains("belongs to a runner"));
    assert_eq!(reported(&data, &keys(2), &of()).unwrap().len(), 1);
    assert!(resume(1).await.unwrap().is_none());
    // The repeated call named another recipient.
    assert_eq!(reported(&data, &keys(2), &of()).unwrap().len(), 2);
    let identity = Identity {
        runner: RUNNER,
        mode: schemas::runner::RunnerMode::Install,
        install: Some(of().install),
        log_id: "log".into(),
        server: "http://localhost".into(),
        trust: crate::tls::Trust::Public,
    };
    enrol::store_identity(&data, &identity).unwrap();
    let (resumed, recovered) = resume(1).await.unwrap().unwrap();
    assert_eq!((resumed, recovered.public()), (identity, keys(2).public()));
}

#[test]
fn a_directory_of_another_runner_is_refused_and_an_interrupted_recovery_continues() {
    let dir = tempfile::tempdir().unwrap();
    let data = Data::open(dir.path()).unwrap();
    check_new(&data, &keys(2)).unwrap();
    seed::store(&data, &keys(2)).unwrap();
    check_new(&data, &keys(2)).unwrap();
    let why = check_new(&data, &keys(3)).unwrap_err().to_string();
    assert!(why.contains("belongs to a runner"), "{why}");
}
