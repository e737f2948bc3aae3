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
    let choice = choose_with(&policy(text), JobKind::Apply, support);
    choice.map(|choice| (choice.report(false).text(), choice.why)).map_err(|refusal| refusal.detail)
}

const ALL: &str = "process (not enforced: files, processes, network, metadata, kernel)";

/// A runner of an earlier version has a policy without a level, too.
#[test]
fn a_policy_without_a_level_changes_nothing() {
    let complete = support(Ok("/usr/bin/bwrap"), Ok("/usr/bin/pasta"));
    let why = "the policy selects no level".to_owned();
    for text in ["", "sandbox_network = \"own\"", "sandbox_read = [\"/srv\"]"] {
        assert_eq!(chosen(text, &complete), Ok((ALL.into(), why.clone())), "{text}");
    }
}

#[test]
fn a_policy_selects_a_sandbox_with_a_network_of_each_job() {
    let complete = support(Ok("/usr/bin/bwrap"), Ok("/usr/bin/pasta"));
    for text in ["isolation = \"sandbox\"", "isolation = { plan = \"sandbox\" }"] {
        assert_eq!(chosen(text, &complete), Ok(("sandbox".into(), String::new())), "{text}");
    }
}

/// The level does not depend on whether bubblewrap works at this moment: a job could prevent that.
#[test]
fn a_host_without_the_level_of_the_policy_refuses_jobs() {
    let bare = support(Err("no bwrap"), Err("no pasta"));
    for text in ["isolation = \"sandbox\"", "isolation = { apply = \"sandbox\" }"] {
        let refusal = chosen(text, &bare).unwrap_err();
        let expected = "apply jobs need the isolation level sandbox";
        assert!(refusal.contains(expected) && refusal.contains("no bwrap"), "{text}: {refusal}");
        assert!(refusal.contains("doctor"), "{refusal}");
        assert!(refusal.contains("isolation = \"process\""), "{refusal}");
    }
    let why = "the policy selects this level";
    assert_eq!(chosen("isolation = \"process\"", &bare), Ok((ALL.into(), why.into())));
}

#[test]
fn a_host_without_pasta_refuses_jobs_unless_the_policy_shares_the_network() {
    let no_pasta = support(Ok("/usr/bin/bwrap"), Err("no pasta"));
    let refusal = chosen("isolation = \"sandbox\"", &no_pasta).unwrap_err();
    assert!(refusal.contains("no pasta"), "{refusal}");
    assert!(refusal.contains("sandbox_network = \"shared\""), "{refusal}");
    // The level does not depend on whether pasta works at this moment.
    let complete = support(Ok("/usr/bin/bwrap"), Ok("/usr/bin/pasta"));
    let shared = (
        "sandbox (not enforced: network, metadata)".to_owned(),
        "the policy shares the network of the host".to_owned(),
    );
    for support in [&no_pasta, &complete] {
        let text = "isolation = \"sandbox\"\nsandbox_network = \"shared\"";
        assert_eq!(chosen(text, support), Ok(shared.clone()));
    }
}

#[test]
fn jobs_that_run_only_git_need_no_sandbox() {
    let bare = support(Err("no bwrap"), Err("no pasta"));
    for kind in [JobKind::Resolve, JobKind::Sync] {
        let choice = choose_with(&policy("isolation = \"sandbox\""), kind, &bare);
        assert_eq!(choice.unwrap().level, IsolationLevel::Process);
    }
}

#[tokio::test]
async fn a_runner_is_checked_for_the_jobs_of_its_mode() {
    // None needs anything of the host.
    for (text, mode) in [
        ("isolation = \"process\"", RunnerMode::Install),
        ("", RunnerMode::Install),
        ("", RunnerMode::Build),
        (
            "isolation = { build = \"sandbox\", apply = \"process\", plan = \"process\", action = \"process\" }",
            RunnerMode::Install,
        ),
    ] {
        assert_eq!(check(&policy(text), mode, &Trial::without_data()).await, Ok(false), "{text}");
    }
}
