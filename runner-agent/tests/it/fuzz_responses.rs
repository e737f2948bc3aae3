//! Fuzz tests that responses do not crash the runner. There is one target per response type. Each
//! target changes a valid response: extreme numbers and times, other types, truncated and repeated
//! text. The test then processes each response within the limits as the runner does.
//!
//! The targets share `FUZZ_SECONDS` (`scripts/fuzz --seconds N`). Without it, each target creates
//! 300 responses.
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use runner_agent::{
    client::{
        Client, Tokens,
        limits::{self, Response},
    },
    data::Data,
    enrol, host,
    keys::Keys,
    shim::order::{CancelOrder, StopCause},
    tls::Trust,
    witness::{Expected, Witness},
};
use schemas::{
    keys::KeyList,
    runner::{
        Claimed, Enrolled, JobKind, LogResponse, PollResponse, Rekeyed, ReportResponse,
        SessionOpened, TokenResponse,
    },
};
use serde_json::{Value, json};

const TARGETS: f64 = 9.0;
const ID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn extreme(random: &mut StdRng) -> Value {
    let texts = [
        "",
        "\u{0}",
        "\u{1b}]0;x\u{7}",
        "../../x",
        "262142-12-31T23:59:59Z",
        "-262143-01-01T00:00:00Z",
        "+262142-12-31T23:59:59.999999999Z",
        "1969-12-31T23:59:59Z",
        "2026-11-21T00:00:60Z",
        "NaN",
    ];
    match random.gen_range(0..12) {
        0 => json!(u64::MAX),
        1 => json!(i64::MIN),
        2 => json!(u64::from(u32::MAX) + 1),
        3 => json!(f64::MAX),
        4 => Value::Null,
        5 => json!([]),
        6 => json!({}),
        7 => json!(i64::MAX),
        8 => json!(random.r#gen::<u64>() >> random.gen_range(0..64)),
        9 => json!("x".repeat(random.gen_range(0..100_000))),
        10 => json!(vec!["00".repeat(32); random.gen_range(0..300)]),
        _ => json!(texts[random.gen_range(0..texts.len())]),
    }
}

fn change(value: &mut Value, random: &mut StdRng) {
    let inside = match value {
        Value::Object(members) if !members.is_empty() && random.gen_bool(0.95) => {
            let at = random.gen_range(0..members.len());
            members.values_mut().nth(at)
        }
        Value::Array(items) if !items.is_empty() && random.gen_bool(0.9) => {
            let at = random.gen_range(0..items.len());
            if random.gen_bool(0.2) {
                let more = items[at].clone();
                items.extend(std::iter::repeat_n(more, 100));
            }
            items.get_mut(at)
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => None,
    };
    match inside {
        Some(inside) => change(inside, random),
        None => *value = extreme(random),
    }
}

fn body(valid: &Value, random: &mut StdRng) -> Vec<u8> {
    let mut value = valid.clone();
    for _ in 0..random.gen_range(1..4) {
        change(&mut value, random);
    }
    let mut bytes = serde_json::to_vec(&value).unwrap();
    if random.gen_bool(0.1) {
        bytes.truncate(random.gen_range(0..=bytes.len()));
    }
    if random.gen_bool(0.1) && !bytes.is_empty() {
        let at = random.gen_range(0..bytes.len());
        bytes[at] = random.r#gen();
    }
    bytes
}

/// Passes each response within the limits to `use_response`, and prints the number of responses.
fn fuzz<T: Response>(valid: Value, mut use_response: impl FnMut(T)) {
    use_response(limits::read(&serde_json::to_vec(&valid).unwrap()).unwrap());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(now);
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse::<f64>().ok());
    let mut random = StdRng::seed_from_u64(seed);
    let (begun, mut created, mut passed) = (Instant::now(), 0_u64, 0_u64);
    println!("seed {seed}");
    loop {
        let is_over = match seconds {
            Some(seconds) => begun.elapsed().as_secs_f64() > seconds / TARGETS,
            None => created == 300,
        };
        if is_over {
            break;
        }
        created += 1;
        if let Ok(response) = limits::read::<T>(&body(&valid, &mut random)) {
            passed += 1;
            use_response(response);
        }
    }
    println!("{created} responses, {passed} within the limits");
}

fn envelope(payload: &Value) -> Value {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let payload = STANDARD.encode(payload.to_string());
    json!({"payload": payload, "payloadType": "application/vnd.stead.keys.v1+json",
        "signatures": [{"keyid": "k", "sig": STANDARD.encode([7; 64])}]})
}

fn keys() -> Value {
    json!({"version": 1, "log_id": "log", "issued_at": "2026-11-21T00:00:00Z", "keys": [
        {"use": "manifests", "key": "11".repeat(32), "not_before": "2026-11-21T00:00:00Z"}]})
}

fn claimed() -> Value {
    json!({"execution": format!("exe_{ID}"), "attempt": 1, "lease_s": 90, "deadline": "2026-11-21T01:00:00Z",
        "server_time": "2026-11-21T00:00:00Z", "manifest": envelope(&json!({})), "grant": envelope(&json!({})),
        "job_token": "t", "log": {"interval_ms": 2000, "chunk_bytes": 65536}, "checkpoint": "log\n1\nAA==\n",
        "inclusion": {"position": 1, "entry": "00", "path": ["00".repeat(32)]},
        "consistency": {"from": 1, "path": ["00".repeat(32)]}})
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn cancel() -> Value {
    json!({"reason": "enough", "grace_s": 30, "force": false})
}

#[test]
fn fuzz_pentest_key_list() {
    let dir = tempfile::tempdir().unwrap();
    let data = Data::open(dir.path()).unwrap();
    let trusted_keys: KeyList = serde_json::from_value(keys()).unwrap();
    fuzz(envelope(&keys()), |list| {
        assert!(
            enrol::renew_keys(&data, &list, &trusted_keys).is_err(),
            "the list has no valid signature"
        );
    });
}

#[test]
fn fuzz_pentest_enrolled() {
    let valid = json!({"runner": format!("rnr_{ID}"), "mode": "install", "install": format!("ins_{ID}"),
        "log_id": "log", "keys": envelope(&keys()), "server_time": "2026-11-21T00:00:00Z"});
    fuzz(valid, |enrolled: Enrolled| use_time(enrolled.server_time));
}

/// Uses the clock in a response of the server.
fn use_time(time: chrono::DateTime<chrono::Utc>) {
    host::set_server_time(time);
    let _token_of_a_minute = host::server_now().timestamp() + 60;
    schemas::moment::text(&host::server_now());
}

#[test]
fn fuzz_pentest_token() {
    let valid =
        json!({"access_token": "t", "expires_in_s": 900, "server_time": "2026-11-21T00:00:00Z"});
    fuzz(valid, |token: TokenResponse| use_time(token.server_time));
}

#[test]
fn fuzz_pentest_rekeyed() {
    let valid = json!({"runner": format!("rnr_{ID}"), "identity_key": "11".repeat(32),
        "server_time": "2026-11-21T00:00:00Z"});
    fuzz(valid, |rekeyed: Rekeyed| use_time(rekeyed.server_time));
}

#[test]
fn fuzz_pentest_session_opened() {
    let dir = tempfile::tempdir().unwrap();
    let identity = Keys::open(&Data::open(dir.path()).unwrap()).unwrap().identity;
    let client = Client::new("http://127.0.0.1:9", &Trust::Public).unwrap();
    let client = client.with_tokens(Tokens::new(format!("rnr_{ID}").parse().unwrap(), identity));
    let valid = json!({"session_id": format!("ses_{ID}"), "generation": 1, "access_token": "t",
        "expires_in_s": 900, "wait_s": 50, "lease_s": 90, "log": {"interval_ms": 2000, "chunk_bytes": 65536},
        "resume": [{"job": format!("job_{ID}"), "action": "resume"}], "server_time": "2026-11-21T00:00:00Z"});
    let runtime = runtime();
    fuzz(valid, |opened: SessionOpened| {
        runtime.block_on(client.opened(&opened));
        use_time(opened.server_time);
        use_poll(opened.wait_s, 0);
    });
}

#[test]
fn fuzz_pentest_poll() {
    let valid = json!({"server_time": "2026-11-21T00:00:00Z", "directives": [
        {"id": "1", "type": "cancel", "job": format!("job_{ID}"), "execution": format!("exe_{ID}"),
            "reason": "enough", "grace_s": 30},
        {"id": "2", "type": "config", "log": {"interval_ms": 2000, "chunk_bytes": 65536}},
        {"id": "3", "type": "offer", "job": format!("job_{ID}"), "kind": "plan", "deadline": "2026-11-21T01:00:00Z"},
        {"id": "4", "type": "upgrade", "version": "1", "digest": "d", "by": "2026-11-21T01:00:00Z"}],
        "leases": [{"job": format!("job_{ID}"), "remaining_ms": 1}], "next": {"wait_s": 50, "delay_ms": 0}});
    fuzz(valid, |poll: PollResponse| {
        use_time(poll.server_time);
        use_poll(poll.next.wait_s.unwrap_or_default(), poll.next.delay_ms);
        for sent in poll.directives {
            if let schemas::runner::Directive::Cancel { grace_s, reason, .. } = sent.directive {
                order(reason, grace_s);
            }
        }
    });
}

/// Computes the timeout and the time of the next poll.
fn use_poll(wait_s: u64, delay_ms: u64) {
    let _timeout = Duration::from_secs(wait_s) + Duration::from_secs(15);
    let _next = tokio::time::Instant::now() + Duration::from_millis(delay_ms);
}

fn order(reason: String, grace_s: u64) {
    let order = CancelOrder { reason, grace_ms: Some(grace_s * 1_000), cause: StopCause::Cancel };
    let _until = Instant::now() + Duration::from_millis(order.grace_ms.unwrap());
}

#[test]
fn fuzz_pentest_claimed() {
    let dir = tempfile::tempdir().unwrap();
    let witness = Witness::of(&Data::open(dir.path()).unwrap());
    let keys: KeyList = serde_json::from_value(keys()).unwrap();
    let expected = Expected {
        log_id: "log".into(),
        runner: format!("rnr_{ID}").parse().unwrap(),
        runner_key: "11".repeat(32),
        job: format!("job_{ID}").parse().unwrap(),
        kind: JobKind::Plan,
    };
    fuzz(claimed(), |claimed: Claimed| {
        use_time(claimed.server_time);
        assert!(witness.verify(&claimed, &expected, &keys, host::server_now()).is_err());
        let refusal = runner_agent::policy::Refusal::policy("x", "y");
        let _stored = witness.store_evidence(expected.job, &claimed, &refusal, host::now());
    });
}

#[test]
fn fuzz_pentest_report_response() {
    fuzz(
        json!({"job_state": "running", "committed_bytes": 7, "cancel": cancel()}),
        |response: ReportResponse| {
            if let Some(cancel) = response.cancel {
                order(cancel.reason, cancel.grace_s);
            }
        },
    );
}

#[test]
fn fuzz_pentest_log_response() {
    fuzz(json!({"committed_bytes": 7, "cancel": cancel()}), |response: LogResponse| {
        if let Some(cancel) = response.cancel {
            order(cancel.reason, cancel.grace_s);
        }
    });
}
