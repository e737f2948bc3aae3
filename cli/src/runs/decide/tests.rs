use serde_json::json;

use super::*;

fn digest(n: u8) -> Digest {
    format!("sha256:{n:064x}").parse().unwrap()
}

/// Run with two plans that wait, and a step without a plan.
fn run() -> Run {
    let step = |n: u8, name: &str, state: &str| {
        let id = format!("stp_0000000000000000000000000{n}");
        let plan = (state == "waiting_for_approval").then(|| {
            json!({
                "digest": digest(n), "noop": false, "add": 1, "change": 0, "destroy": 0,
                "summary": digest(n + 100),
            })
        });
        json!({
            "id": id, "kind": "deploy", "name": name, "depends_on": [], "layer": 0,
            "state": state, "plan": plan,
        })
    };
    serde_json::from_value(json!({
        "id": "run_00000000000000000000000001",
        "install": "ins_00000000000000000000000001",
        "install_name": "acme", "kind": "deploy", "state": "waiting_for_approval",
        "requested_by": "system", "steps": 3, "steps_ended": 0,
        "requested_at": "2026-11-20T12:00:00.000000Z",
        "dag": [
            step(1, "api", "waiting_for_approval"),
            step(2, "web", "waiting_for_approval"),
            step(3, "dns", "pending"),
        ],
        "position": 7,
    }))
    .unwrap()
}

fn args(step: Option<&str>, digests: &[u8], all: bool) -> DecideArgs {
    DecideArgs {
        run: "acme".into(),
        reason: "read it".into(),
        step: step.map(str::to_owned),
        digests: digests.iter().map(|n| digest(*n)).collect(),
        all,
        details: None,
        wait: false,
    }
}

/// Returns the names of the selected steps, with the digests to approve.
fn on(args: &DecideArgs, asks: bool) -> Result<Vec<(String, Digest)>, Failure> {
    let run = run();
    let steps = waiting_steps(&run, args.step.as_deref())?;
    let selected = select_plans(&run, &steps, args, asks)?;
    Ok(selected.into_iter().map(|(step, digest)| (step.name.clone(), digest)).collect())
}

#[test]
fn only_plans_with_given_digests_are_selected() {
    assert_eq!(on(&args(None, &[2], false), false).unwrap(), [("web".into(), digest(2))]);
    let both = on(&args(None, &[2, 1], false), false).unwrap();
    assert_eq!(both, [("web".into(), digest(2)), ("api".into(), digest(1))]);
    // One of the plans has changed: neither is approved.
    let stale = on(&args(None, &[2, 9], false), false).unwrap_err();
    assert_eq!(stale.code(), 3);
    // With a named step, the server checks the digest.
    assert_eq!(on(&args(Some("api"), &[9], false), false).unwrap(), [("api".into(), digest(9))]);
}

#[test]
fn digest_or_all_is_required_without_a_terminal() {
    let rejected = on(&args(None, &[], false), false).unwrap_err();
    assert!(rejected.code() == 2 && rejected.text().contains("--digest"), "{}", rejected.text());
    assert_eq!(on(&args(None, &[], true), false).unwrap().len(), 2);
    assert_eq!(on(&args(None, &[], false), true).unwrap().len(), 2, "the user confirms each plan");
    let none = on(&args(Some("dns"), &[], true), false).unwrap_err();
    assert!(none.text().contains("no plan exists yet for dns"), "{}", none.text());
}

#[test]
fn plans_of_a_run_with_plan_all_have_one_prompt_that_lists_later_approvals() {
    let mut run = run();
    let numbers = |run: &Run| groups(run, vec![1, 2]);
    assert_eq!(numbers(&run), [vec![1], vec![2]]);
    assert_eq!(later_text(&run), None);
    run.plan_all = true;
    run.dag[2].approval_later = true;
    assert_eq!(numbers(&run), [vec![1, 2]]);
    assert_eq!(groups(&run, Vec::<u8>::new()), Vec::<Vec<u8>>::new());
    let later = "Approval later, after changes of this run: dns";
    assert_eq!(later_text(&run).as_deref(), Some(later));
    let plans: Vec<_> = run.dag.iter().take(2).map(|step| (step, digest(1))).collect();
    let both = prompt(&run, "Approve", &plans);
    assert_eq!(both, format!("\n{later}\nApprove these 2 plans? [y/N] "));
    assert_eq!(prompt(&run, "Deny", &plans[..1]), "Deny api? [y/N] ");
}
