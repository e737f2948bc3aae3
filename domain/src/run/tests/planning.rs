//! Steps that deploys, teardowns and deprovisions plan.
use std::collections::{BTreeMap, BTreeSet};

use super::digest;
use crate::{
    ids::{BuildId, ComponentId, StepId},
    run::{Operation, RemainingWork, StepSpec, Target, plan::*},
};

/// Dependencies: b and c on a, d on b and c, e on nothing. b reads the sandbox.
fn desired() -> DesiredState {
    let component = |n: u8, depends_on: &[&str]| DesiredComponent {
        component: ComponentId(ulid::Ulid(u128::from(n))),
        build: BuildId(ulid::Ulid(u128::from(n))),
        depends_on: depends_on.iter().map(|dependency| dependency.to_string()).collect(),
        reads_sandbox: n == 2,
        fingerprint: digest(n),
    };
    let all = [
        ("a", component(1, &[])),
        ("b", component(2, &["a"])),
        ("c", component(3, &["a"])),
        ("d", component(4, &["b", "c"])),
        ("e", component(5, &[])),
    ];
    DesiredState {
        sandbox: Some(DesiredSandbox { build: BuildId(ulid::Ulid(9)), fingerprint: digest(9) }),
        components: all.into_iter().map(|(name, c)| (name.to_string(), c)).collect(),
        after: vec!["seed".into()],
    }
}

fn deployed(desired: &DesiredState) -> ActualState {
    let actual_component = |c: &DesiredComponent| ActualComponent {
        component: c.component,
        build: c.build,
        fingerprint: Some(c.fingerprint.clone()),
        depends_on: c.depends_on.clone(),
        stale_outputs: StaleOutputs::default(),
    };
    ActualState {
        sandbox: desired.sandbox.as_ref().map(|s| (s.build, Some(s.fingerprint.clone()))),
        components: desired
            .components
            .iter()
            .map(|(n, c)| (n.clone(), actual_component(c)))
            .collect(),
    }
}

pub fn ids() -> impl FnMut() -> StepId {
    let mut last = 0;
    move || {
        last += 1;
        StepId(ulid::Ulid(last))
    }
}

pub fn steps_text(steps: &[StepSpec]) -> String {
    let name = |step: &StepSpec| match &step.target {
        Target::Sandbox { .. } => "sandbox".to_string(),
        Target::Component { name, .. } => name.clone(),
        Target::Action { name } => name.clone(),
    };
    let names: BTreeMap<_, _> = steps.iter().map(|step| (step.step, name(step))).collect();
    let line = |step: &StepSpec| {
        let depends_on: BTreeSet<_> =
            step.depends_on.iter().map(|dependency| names[dependency].clone()).collect();
        let depends_on: Vec<_> = depends_on.into_iter().collect();
        let sign = match step.operation {
            Operation::Apply => "+",
            Operation::Destroy => "-",
            Operation::Execute => "!",
            Operation::Check => "?",
        };
        format!("{sign}{}({})", name(step), depends_on.join(" "))
    };
    steps.iter().map(line).collect::<Vec<_>>().join(", ")
}

pub fn deploy_text(desired: &DesiredState, actual: &ActualState, scope: Scope) -> String {
    steps_text(&plan_deploy(desired, actual, &scope, ids()).unwrap())
}

#[test]
fn an_empty_install_gets_everything_in_order() {
    let all = "+sandbox(), +a(sandbox), +e(sandbox), +b(a sandbox), +c(a sandbox), \
               +d(b c sandbox), !seed(a b c d e sandbox)";
    assert_eq!(deploy_text(&desired(), &ActualState::default(), Scope::Changed), all);
    let actual = deployed(&desired());
    assert_eq!(deploy_text(&desired(), &actual, Scope::Everything), all);
}

#[test]
fn an_up_to_date_install_has_no_steps() {
    assert_eq!(deploy_text(&desired(), &deployed(&desired()), Scope::Changed), "");
}

#[test]
fn a_change_affects_the_readers_of_a_component() {
    let actual = deployed(&desired());
    let mut changed = desired();
    changed.components.get_mut("b").unwrap().fingerprint = digest(77);
    assert_eq!(deploy_text(&changed, &actual, Scope::Changed), "+b(), +d(b), !seed(b d)");
    let mut changed = desired();
    changed.components.get_mut("e").unwrap().fingerprint = digest(77);
    assert_eq!(deploy_text(&changed, &actual, Scope::Changed), "+e(), !seed(e)");
    let mut changed = desired();
    changed.sandbox.as_mut().unwrap().fingerprint = digest(77);
    let expected = "+sandbox(), +b(sandbox), +d(b sandbox), !seed(b d sandbox)";
    assert_eq!(deploy_text(&changed, &actual, Scope::Changed), expected);
}

#[test]
fn a_component_with_outdated_outputs_is_planned() {
    let mut actual = deployed(&desired());
    let mut plan_with_stale = |name: &str, sandbox, components: &[&str]| {
        let components = components.iter().map(|name| name.to_string()).collect();
        actual.components.get_mut(name).unwrap().stale_outputs =
            StaleOutputs { sandbox, components };
        deploy_text(&desired(), &actual, Scope::Changed)
    };
    // e and c do not read the outputs that changed.
    assert_eq!(plan_with_stale("e", true, &["a", "b"]), "");
    assert_eq!(plan_with_stale("c", true, &["b", "e"]), "");
    assert_eq!(plan_with_stale("d", false, &["b"]), "+d(), !seed(d)");
    assert_eq!(plan_with_stale("d", false, &[]), "");
    assert_eq!(plan_with_stale("b", true, &[]), "+b(), +d(b), !seed(b d)");
    // The scope names only e, so b is not planned.
    let named = Scope::Named { names: [String::from("e")].into(), dependents: false };
    assert_eq!(deploy_text(&desired(), &actual, named), "+e(), !seed(e)");
}

#[test]
fn a_removed_component_without_users_is_destroyed_first() {
    let mut changed = desired();
    let actual = deployed(&changed);
    changed.components.remove("d");
    changed.components.remove("c");
    let expected = "-d(), -c(d), !seed(c d)";
    assert_eq!(deploy_text(&changed, &actual, Scope::Changed), expected);
}

#[test]
fn a_removed_component_is_destroyed_after_its_users_are_applied() {
    // b and c used a, so a is destroyed after their applies. No component uses d, so d is destroyed
    // first.
    let mut changed = desired();
    let actual = deployed(&changed);
    changed.components.remove("a");
    changed.components.remove("d");
    for (n, name) in [(77, "b"), (78, "c")] {
        let user = changed.components.get_mut(name).unwrap();
        (user.depends_on, user.fingerprint) = (BTreeSet::new(), digest(n));
    }
    let expected = "-d(), +b(), +c(), -a(b c), !seed(a b c d)";
    assert_eq!(deploy_text(&changed, &actual, Scope::Changed), expected);
    // The sandbox does not wait for a, because the users of a wait for the sandbox.
    changed.sandbox.as_mut().unwrap().fingerprint = digest(79);
    let expected = "-d(), +sandbox(d), +b(sandbox), +c(sandbox), -a(b c), !seed(a b c d sandbox)";
    assert_eq!(deploy_text(&changed, &actual, Scope::Changed), expected);
    // d uses a through b. Both a and b are destroyed, a after b.
    let mut changed = desired();
    for name in ["a", "b"] {
        changed.components.remove(name);
    }
    for (n, name) in [(80, "c"), (81, "d")] {
        let user = changed.components.get_mut(name).unwrap();
        (user.depends_on, user.fingerprint) = (BTreeSet::new(), digest(n));
    }
    let expected = "+c(), +d(), -b(d), -a(b c), !seed(a b c d)";
    assert_eq!(deploy_text(&changed, &actual, Scope::Changed), expected);
}

#[test]
fn a_retry_plans_only_the_remaining_work() {
    let mut changed = desired();
    let actual = deployed(&changed);
    changed.components.remove("d");
    changed.components.remove("c");
    let names = |all: &[&str]| all.iter().map(|name| name.to_string()).collect();
    let remaining = RemainingWork { destroy: names(&["d"]), ..RemainingWork::default() };
    assert_eq!(deploy_text(&changed, &actual, Scope::Remaining(remaining)), "-d()");
    let actions = vec!["seed".into(), "smoke".into()];
    let remaining = RemainingWork { actions: actions.clone(), ..RemainingWork::default() };
    assert_eq!(
        deploy_text(&changed, &actual, Scope::Remaining(remaining)),
        "!seed(), !smoke(seed)"
    );
    let remaining =
        RemainingWork { sandbox: true, deploy: names(&["b"]), actions, ..RemainingWork::default() };
    let expected = "+sandbox(), +b(sandbox), !seed(b sandbox), !smoke(seed)";
    assert_eq!(deploy_text(&changed, &actual, Scope::Remaining(remaining)), expected);
    let remaining =
        Scope::Remaining(RemainingWork { destroy: names(&["b", "d"]), ..RemainingWork::default() });
    assert_eq!(steps_text(&teardown(&actual, &remaining, ids())), "-d(), -b(d)");
    let unknown =
        Scope::Remaining(RemainingWork { deploy: names(&["x"]), ..RemainingWork::default() });
    assert_eq!(
        plan_deploy(&changed, &actual, &unknown, ids()).unwrap_err(),
        NoSuchComponent("x".into())
    );
}

#[test]
fn named_components_are_planned_changed_or_not() {
    let actual = deployed(&desired());
    let names: BTreeSet<String> = [String::from("b")].into();
    let alone = Scope::Named { names: names.clone(), dependents: false };
    assert_eq!(deploy_text(&desired(), &actual, alone), "+b(), !seed(b)");
    let with = Scope::Named { names, dependents: true };
    assert_eq!(deploy_text(&desired(), &actual, with), "+b(), +d(b), !seed(b d)");
    let unknown = Scope::Named { names: [String::from("x")].into(), dependents: false };
    let rejected = plan_deploy(&desired(), &actual, &unknown, ids()).unwrap_err();
    assert_eq!(rejected, NoSuchComponent("x".into()));
}

#[test]
fn a_teardown_destroys_dependents_first() {
    let actual = deployed(&desired());
    let expected = "-d(), -c(d), -b(d), -e(), -a(b c)";
    let steps = steps_text(&teardown(&actual, &Scope::Everything, ids()));
    assert_eq!(steps, expected);
    let steps = steps_text(&deprovision(&actual, ids()));
    assert_eq!(steps, format!("{expected}, -sandbox(a b c d e)"));
    assert_eq!(steps_text(&deprovision(&ActualState::default(), ids())), "");
}

#[test]
fn an_incomplete_component_is_deployed_again_or_destroyed() {
    let mut actual = deployed(&desired());
    for name in ["a", "e"] {
        actual.components.get_mut(name).unwrap().fingerprint = None;
    }
    let expected = "+a(), +e(), +b(a), +c(a), +d(b c), !seed(a b c d e)";
    assert_eq!(deploy_text(&desired(), &actual, Scope::Changed), expected);
    // The config no longer has e, whose apply did not succeed. e is still destroyed.
    let mut without = desired();
    without.components.remove("e");
    actual.components.get_mut("a").unwrap().fingerprint = Some(digest(1));
    assert_eq!(deploy_text(&without, &actual, Scope::Changed), "-e(), !seed(e)");
    let (build, incomplete) = (BuildId(ulid::Ulid(9)), None);
    let only = ActualState { sandbox: Some((build, incomplete)), ..ActualState::default() };
    assert_eq!(steps_text(&deprovision(&only, ids())), "-sandbox()");
    let named = Scope::Named { names: [String::from("e")].into(), dependents: false };
    assert_eq!(deploy_text(&desired(), &only, named), "+sandbox(), +e(sandbox), !seed(e sandbox)");
}

#[test]
fn a_sandbox_change_includes_deployed_readers_even_if_others_are_named() {
    let mut actual = deployed(&desired());
    actual.sandbox.as_mut().unwrap().1 = None;
    let e = BTreeSet::from([String::from("e")]);
    let expected = "+sandbox(), +e(sandbox), +b(sandbox), +d(b sandbox), !seed(b d e sandbox)";
    let named = |names| Scope::Named { names, dependents: false };
    assert_eq!(deploy_text(&desired(), &actual, named(e.clone())), expected);
    let remaining = RemainingWork {
        deploy: e.clone(),
        actions: vec!["seed".into()],
        ..RemainingWork::default()
    };
    assert_eq!(deploy_text(&desired(), &actual, Scope::Remaining(remaining)), expected);
    // d is not deployed, so it reads the new outputs at its first deploy.
    actual.components.remove("d");
    let expected = "+sandbox(), +e(sandbox), +b(sandbox), !seed(b e sandbox)";
    assert_eq!(deploy_text(&desired(), &actual, named(e)), expected);
}

#[test]
fn a_repeated_change_destroys_a_component_after_its_user_is_applied() {
    // b depended on a and no longer depends on anything. Its first apply failed halfway.
    let mut changed = desired();
    let mut actual = deployed(&changed);
    for name in ["a", "c", "d"] {
        changed.components.remove(name);
    }
    actual.components.retain(|name, _| changed.components.contains_key(name) || name == "a");
    changed.components.get_mut("b").unwrap().depends_on = BTreeSet::new();
    actual.components.get_mut("b").unwrap().fingerprint = None;
    let expected = "+b(), -a(b), !seed(a b)";
    assert_eq!(deploy_text(&changed, &actual, Scope::Changed), expected);
    let (deploy, destroy) = (["b".to_string()].into(), ["a".to_string()].into());
    let remaining =
        RemainingWork { deploy, destroy, actions: vec!["seed".into()], ..RemainingWork::default() };
    assert_eq!(deploy_text(&changed, &actual, Scope::Remaining(remaining)), expected);
}

#[test]
fn a_drift_check_covers_the_parts_that_exist() {
    let check = |desired: &DesiredState, actual: &ActualState, scope: Scope| {
        steps_text(&drift(desired, actual, &scope, ids()))
    };
    let actual = deployed(&desired());
    let everything = "?sandbox(), ?a(), ?b(), ?c(), ?d(), ?e()";
    assert_eq!(check(&desired(), &actual, Scope::Everything), everything);
    assert_eq!(check(&desired(), &ActualState::default(), Scope::Everything), "");
    // A component that the config no longer has is checked with the version that deployed it.
    let mut later = desired();
    later.components.remove("d");
    let steps = drift(&later, &actual, &Scope::Everything, ids());
    assert_eq!(steps_text(&steps), everything);
    let without: Vec<_> = steps.iter().filter(|step| step.fingerprint.is_none()).collect();
    assert_eq!(without.len(), 1);
    // A component that is not deployed yet is not checked.
    let mut smaller = actual.clone();
    smaller.components.remove("e");
    let expected = "?sandbox(), ?a(), ?b(), ?c(), ?d()";
    assert_eq!(check(&desired(), &smaller, Scope::Everything), expected);
    let remaining = RemainingWork { deploy: ["b".to_owned()].into(), ..RemainingWork::default() };
    assert_eq!(check(&desired(), &actual, Scope::Remaining(remaining)), "?b()");
}
