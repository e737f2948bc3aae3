//! Choice of a level from the policy and the support of the host.
use super::*;

fn policy(text: &str) -> Policy {
    toml::from_str(&format!("version = 1\n{text}")).unwrap()
}

fn support(bwrap: Result<&str, &str>, pasta: Result<&str, &str>) -> Support {
    let of = |found: Result<&str, &str>| found.map(PathBuf::from).map_err(String::from);
    Support { bwrap: of(bwrap), closes_namespaces: true, pasta: of(pasta) }
}

fn chosen(text: &str, support: &Support) -> Result<(String, String), String> {
    let choice = choose_with(&policy(text), JobKind::Apply, RunnerMode::Install, support);
    choice.map(|choice| (choice.report().text(), choice.why)).map_err(|refusal| refusal.detail)
}

#[test]
fn jobs_get_a_sandbox_with_a_network_of_their_own() {
    let complete = support(Ok("/usr/bin/bwrap"), Ok("/usr/bin/pasta"));
    for text in ["", "isolation = \"sandbox\"", "sandbox_network = \"own\""] {
        assert_eq!(chosen(text, &complete), Ok(("sandbox".into(), String::new())), "{text}");
    }
}

#[test]
fn a_host_without_a_sandbox_refuses_jobs_unless_the_policy_selects_process() {
    let bare = support(Err("no bwrap"), Err("no pasta"));
    let texts = ["", "isolation = \"sandbox\"", "isolation = { apply = \"sandbox\" }"];
    for text in texts.into_iter().chain(["isolation = { action = \"process\" }"]) {
        let refusal = chosen(text, &bare).unwrap_err();
        let expected = "apply jobs need the isolation level sandbox";
        assert!(refusal.contains(expected) && refusal.contains("no bwrap"), "{text}: {refusal}");
        assert!(refusal.contains("doctor"), "{refusal}");
        assert!(refusal.contains("isolation = \"process\""), "{refusal}");
    }
    let all = "process (not enforced: files, processes, network, metadata)";
    let why = "the policy selects this level";
    assert_eq!(chosen("isolation = \"process\"", &bare), Ok((all.into(), why.into())));
}

#[test]
fn a_host_without_pasta_refuses_jobs_unless_the_policy_shares_the_network() {
    let no_pasta = support(Ok("/usr/bin/bwrap"), Err("no pasta"));
    for text in ["", "isolation = \"sandbox\""] {
        let refusal = chosen(text, &no_pasta).unwrap_err();
        assert!(refusal.contains("no pasta"), "{refusal}");
        assert!(refusal.contains("sandbox_network = \"shared\""), "{refusal}");
    }
    // The level does not depend on whether pasta works at this moment.
    let complete = support(Ok("/usr/bin/bwrap"), Ok("/usr/bin/pasta"));
    let shared = (
        "sandbox (not enforced: network, metadata)".to_owned(),
        "the policy shares the network of the host".to_owned(),
    );
    for support in [&no_pasta, &complete] {
        assert_eq!(chosen("sandbox_network = \"shared\"", support), Ok(shared.clone()));
    }
}

/// A runner that enrolled before jobs had a sandbox continues, and says what its jobs get.
#[test]
fn an_older_runner_accepts_what_the_host_supports_unless_its_policy_names_a_level() {
    let choose = |text: &str, bwrap, pasta| {
        let mut policy = policy(text);
        policy.accepts_less = true;
        let support = support(bwrap, pasta);
        choose_with(&policy, JobKind::Apply, RunnerMode::Install, &support)
    };
    let (bwrap, pasta) = (Ok("/usr/bin/bwrap"), Ok("/usr/bin/pasta"));
    let complete = choose("", bwrap, pasta).unwrap();
    assert_eq!((complete.report().text().as_str(), complete.is_fallback), ("sandbox", false));
    let bare = choose("", Err("no bwrap"), pasta).unwrap();
    assert_eq!((bare.level, bare.is_fallback), (IsolationLevel::Process, true));
    for text in ["no bwrap", "doctor", "isolation = \"process\""] {
        assert!(bare.note().contains(text), "{}", bare.note());
    }
    let shared = choose("", bwrap, Err("no pasta")).unwrap();
    assert_eq!(shared.report().not_enforced, [Protection::Network, Protection::Metadata]);
    assert!(shared.is_fallback && shared.note().contains("no pasta"), "{}", shared.note());
    let chosen = choose("sandbox_network = \"shared\"", bwrap, pasta).unwrap();
    assert!(!chosen.is_fallback);
    for text in ["isolation = \"sandbox\"", "isolation = { apply = \"sandbox\" }"] {
        choose(text, Err("no bwrap"), pasta).unwrap_err();
        choose(text, bwrap, Err("no pasta")).unwrap_err();
    }
}

#[test]
fn a_runner_that_enrolled_without_the_check_is_an_older_one() {
    let dir = tempfile::tempdir().unwrap();
    let data = crate::data::Data::open(dir.path()).unwrap();
    crate::policy::Choice::None.record(&data).unwrap();
    assert!(!Policy::current(&data).unwrap().accepts_less, "not enrolled");
    let older = serde_json::json!({
        "runner": "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV", "mode": "install", "log_id": "l",
        "server": "https://example.com", "trust": crate::tls::Trust::Public,
    });
    crate::data::replace_json(&data.path("runner.json"), &older).unwrap();
    assert!(Policy::current(&data).unwrap().accepts_less);
    let mut newer = older;
    newer["isolation_checked"] = true.into();
    crate::data::replace_json(&data.path("runner.json"), &newer).unwrap();
    assert!(!Policy::current(&data).unwrap().accepts_less);
}

#[test]
fn a_build_runner_uses_a_sandbox_only_if_its_policy_requires_one() {
    let complete = support(Ok("/usr/bin/bwrap"), Ok("/usr/bin/pasta"));
    let level = |text: &str| {
        choose_with(&policy(text), JobKind::Build, RunnerMode::Build, &complete).unwrap().level
    };
    assert_eq!(level(""), IsolationLevel::Process);
    assert_eq!(level("isolation = \"sandbox\""), IsolationLevel::Sandbox);
}

#[test]
fn jobs_that_run_only_git_need_no_sandbox() {
    let bare = support(Err("no bwrap"), Err("no pasta"));
    for kind in [JobKind::Resolve, JobKind::Sync] {
        let choice =
            choose_with(&policy("isolation = \"sandbox\""), kind, RunnerMode::Install, &bare);
        assert_eq!(choice.unwrap().level, IsolationLevel::Process);
    }
}

#[tokio::test]
async fn a_runner_is_checked_for_the_jobs_of_its_mode() {
    let of = |text: &str| policy(text);
    // Neither needs anything of the host.
    for (text, mode) in [("isolation = \"process\"", RunnerMode::Install), ("", RunnerMode::Build)]
    {
        assert_eq!(check(&of(text), mode).await.unwrap(), None);
    }
}
