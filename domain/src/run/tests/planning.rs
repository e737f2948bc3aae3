//! A deploy plans only the components that a change affects.
use std::collections::{BTreeMap, BTreeSet};

use super::digest;
use crate::{
    ids::{BuildId, ComponentId, StepId},
    run::{Operation, RemainingWork, StepSpec, Target, plan::*},
};

/// Dependencies: b and c on a, d on b and c, e on nothing. b reads the sandbox.
fn wanted() -> DesiredState {
    let component = |n: u8, depends_on: &[&str]| DesiredComponent {
        component: ComponentId(ulid::Ulid(u128::from(n))),
        build: BuildId(ulid::Ulid(u128::from(n))),
        depends_on: depends_on.iter().map(|need| need.to_string()).collect(),
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

fn deployed(wanted: &DesiredState) -> ActualState {
    let has = |c: &DesiredComponent| ActualComponent {
        component: c.component,
        build: c.build,
        fingerprint: Some(c.fingerprint.clone()),
        depends_on: c.depends_on.clone(),
        stale_outputs: StaleOutputs::default(),
    };
    ActualState {
        sandbox: wanted.sandbox.as_ref().map(|s| (s.build, Some(s.fingerprint.clone()))),
        components: wanted.components.iter().map(|(n, c)| (n.clone(), has(c))).collect(),
    }
}

pub fn ids() -> impl FnMut() -> StepId {
    let mut last = 0;
    move || {
        last += 1;
        StepId(ulid::Ulid(last))
    }
}

pub fn words(steps: &[StepSpec]) -> String {
    let name = |step: &StepSpec| match &step.target {
        Target::Sandbox { .. } => "sandbox".to_string(),
        Target::Component { name, .. } => name.clone(),
        Target::Action { name } => name.clone(),
    };
    let names: BTreeMap<_, _> = steps.iter().map(|step| (step.step, name(step))).collect();
    let line = |step: &StepSpec| {
        let depends_on: BTreeSet<_> =
            step.depends_on.iter().map(|need| names[need].clone()).collect();
        let depends_on: Vec<_> = depends_on.into_iter().collect();
        let sign = match step.operation {
            Operation::Apply => "+",
            Operation::Destroy => "-",
            Operation::Execute => "!",
        };
        format!("{sign}{}({})", name(step), depends_on.join(" "))
    };
    steps.iter().map(line).collect::<Vec<_>>().join(", ")
}

pub fn bring_words(wanted: &DesiredState, present: &ActualState, scope: Scope) -> String {
    words(&plan_deploy(wanted, present, &scope, ids()).unwrap())
}

#[test]
fn an_empty_install_gets_everything_in_order() {
    let all = "+sandbox(), +a(sandbox), +e(sandbox), +b(a sandbox), +c(a sandbox), \
               +d(b c sandbox), !seed(a b c d e sandbox)";
    assert_eq!(bring_words(&wanted(), &ActualState::default(), Scope::Changed), all);
    let has = deployed(&wanted());
    assert_eq!(bring_words(&wanted(), &has, Scope::Everything), all);
}

#[test]
fn what_is_there_as_wanted_is_not_planned() {
    assert_eq!(bring_words(&wanted(), &deployed(&wanted()), Scope::Changed), "");
}

#[test]
fn a_change_reaches_what_reads_from_it() {
    let has = deployed(&wanted());
    let mut now = wanted();
    now.components.get_mut("b").unwrap().fingerprint = digest(77);
    assert_eq!(bring_words(&now, &has, Scope::Changed), "+b(), +d(b), !seed(b d)");
    let mut now = wanted();
    now.components.get_mut("e").unwrap().fingerprint = digest(77);
    assert_eq!(bring_words(&now, &has, Scope::Changed), "+e(), !seed(e)");
    let mut now = wanted();
    now.sandbox.as_mut().unwrap().fingerprint = digest(77);
    let reached = "+sandbox(), +b(sandbox), +d(b sandbox), !seed(b d sandbox)";
    assert_eq!(bring_words(&now, &has, Scope::Changed), reached);
}

#[test]
fn a_component_with_outdated_outputs_is_planned() {
    let mut has = deployed(&wanted());
    let mut missed = |name: &str, sandbox, components: &[&str]| {
        let components = components.iter().map(|name| name.to_string()).collect();
        has.components.get_mut(name).unwrap().stale_outputs = StaleOutputs { sandbox, components };
        bring_words(&wanted(), &has, Scope::Changed)
    };
    // e and c do not read the outputs that changed.
    assert_eq!(missed("e", true, &["a", "b"]), "");
    assert_eq!(missed("c", true, &["b", "e"]), "");
    assert_eq!(missed("d", false, &["b"]), "+d(), !seed(d)");
    assert_eq!(missed("d", false, &[]), "");
    assert_eq!(missed("b", true, &[]), "+b(), +d(b), !seed(b d)");
    // The scope names only e, so b is not planned.
    let named = Scope::Named { names: [String::from("e")].into(), dependents: false };
    assert_eq!(bring_words(&wanted(), &has, named), "+e(), !seed(e)");
}

#[test]
fn a_component_that_nothing_planned_uses_goes_first() {
    let mut now = wanted();
    let has = deployed(&now);
    now.components.remove("d");
    now.components.remove("c");
    let gone = "-d(), -c(d), !seed(c d)";
    assert_eq!(bring_words(&now, &has, Scope::Changed), gone);
}

#[test]
fn a_component_that_the_config_no_longer_has_goes_when_its_users_have_moved_off_it() {
    // b and c used a, so a is destroyed after their applies. No component uses d, so d is destroyed
    // first.
    let mut now = wanted();
    let has = deployed(&now);
    now.components.remove("a");
    now.components.remove("d");
    for (n, name) in [(77, "b"), (78, "c")] {
        let user = now.components.get_mut(name).unwrap();
        (user.depends_on, user.fingerprint) = (BTreeSet::new(), digest(n));
    }
    let off = "-d(), +b(), +c(), -a(b c), !seed(a b c d)";
    assert_eq!(bring_words(&now, &has, Scope::Changed), off);
    // The sandbox does not wait for a, because the users of a wait for the sandbox.
    now.sandbox.as_mut().unwrap().fingerprint = digest(79);
    let off = "-d(), +sandbox(d), +b(sandbox), +c(sandbox), -a(b c), !seed(a b c d sandbox)";
    assert_eq!(bring_words(&now, &has, Scope::Changed), off);
    // d uses a through b. Both a and b are destroyed, a after b.
    let mut now = wanted();
    for name in ["a", "b"] {
        now.components.remove(name);
    }
    for (n, name) in [(80, "c"), (81, "d")] {
        let user = now.components.get_mut(name).unwrap();
        (user.depends_on, user.fingerprint) = (BTreeSet::new(), digest(n));
    }
    let off = "+c(), +d(), -b(d), -a(b c), !seed(a b c d)";
    assert_eq!(bring_words(&now, &has, Scope::Changed), off);
}

#[test]
fn a_retry_does_what_was_left_undone_and_nothing_else() {
    let mut now = wanted();
    let has = deployed(&now);
    now.components.remove("d");
    now.components.remove("c");
    let names = |all: &[&str]| all.iter().map(|name| name.to_string()).collect();
    let undone = RemainingWork { destroy: names(&["d"]), ..RemainingWork::default() };
    assert_eq!(bring_words(&now, &has, Scope::Undone(undone)), "-d()");
    let actions = vec!["seed".into(), "smoke".into()];
    let undone = RemainingWork { actions: actions.clone(), ..RemainingWork::default() };
    assert_eq!(bring_words(&now, &has, Scope::Undone(undone)), "!seed(), !smoke(seed)");
    let undone =
        RemainingWork { sandbox: true, deploy: names(&["b"]), actions, ..RemainingWork::default() };
    let again = "+sandbox(), +b(sandbox), !seed(b sandbox), !smoke(seed)";
    assert_eq!(bring_words(&now, &has, Scope::Undone(undone)), again);
    let undone =
        Scope::Undone(RemainingWork { destroy: names(&["b", "d"]), ..RemainingWork::default() });
    assert_eq!(words(&teardown(&has, &undone, ids())), "-d(), -b(d)");
    let unknown =
        Scope::Undone(RemainingWork { deploy: names(&["x"]), ..RemainingWork::default() });
    assert_eq!(plan_deploy(&now, &has, &unknown, ids()).unwrap_err(), NoSuchComponent("x".into()));
}

#[test]
fn named_components_are_planned_changed_or_not() {
    let has = deployed(&wanted());
    let names: BTreeSet<String> = [String::from("b")].into();
    let alone = Scope::Named { names: names.clone(), dependents: false };
    assert_eq!(bring_words(&wanted(), &has, alone), "+b(), !seed(b)");
    let with = Scope::Named { names, dependents: true };
    assert_eq!(bring_words(&wanted(), &has, with), "+b(), +d(b), !seed(b d)");
    let unknown = Scope::Named { names: [String::from("x")].into(), dependents: false };
    let refused = plan_deploy(&wanted(), &has, &unknown, ids()).unwrap_err();
    assert_eq!(refused, NoSuchComponent("x".into()));
}

#[test]
fn a_teardown_goes_backwards() {
    let has = deployed(&wanted());
    let down = "-d(), -c(d), -b(d), -e(), -a(b c)";
    let steps = words(&teardown(&has, &Scope::Everything, ids()));
    assert_eq!(steps, down);
    let steps = words(&deprovision(&has, ids()));
    assert_eq!(steps, format!("{down}, -sandbox(a b c d e)"));
    assert_eq!(words(&deprovision(&ActualState::default(), ids())), "");
}

#[test]
fn what_an_apply_left_half_done_is_brought_again_and_taken_down() {
    let mut has = deployed(&wanted());
    for name in ["a", "e"] {
        has.components.get_mut(name).unwrap().fingerprint = None;
    }
    let again = "+a(), +e(), +b(a), +c(a), +d(b c), !seed(a b c d e)";
    assert_eq!(bring_words(&wanted(), &has, Scope::Changed), again);
    // The config no longer has e, whose apply did not succeed. e is still destroyed.
    let mut without = wanted();
    without.components.remove("e");
    has.components.get_mut("a").unwrap().fingerprint = Some(digest(1));
    assert_eq!(bring_words(&without, &has, Scope::Changed), "-e(), !seed(e)");
    let (build, half) = (BuildId(ulid::Ulid(9)), None);
    let only = ActualState { sandbox: Some((build, half)), ..ActualState::default() };
    assert_eq!(words(&deprovision(&only, ids())), "-sandbox()");
    let named = Scope::Named { names: [String::from("e")].into(), dependents: false };
    assert_eq!(bring_words(&wanted(), &only, named), "+sandbox(), +e(sandbox), !seed(e sandbox)");
}

#[test]
fn a_sandbox_that_moves_takes_along_what_is_there_and_reads_it_whatever_was_named() {
    let mut has = deployed(&wanted());
    has.sandbox.as_mut().unwrap().1 = None;
    let e = BTreeSet::from([String::from("e")]);
    let along = "+sandbox(), +e(sandbox), +b(sandbox), +d(b sandbox), !seed(b d e sandbox)";
    let named = |names| Scope::Named { names, dependents: false };
    assert_eq!(bring_words(&wanted(), &has, named(e.clone())), along);
    let undone = RemainingWork {
        deploy: e.clone(),
        actions: vec!["seed".into()],
        ..RemainingWork::default()
    };
    assert_eq!(bring_words(&wanted(), &has, Scope::Undone(undone)), along);
    // d is not deployed, so it reads the new outputs at its first deploy.
    has.components.remove("d");
    let along = "+sandbox(), +e(sandbox), +b(sandbox), !seed(b e sandbox)";
    assert_eq!(bring_words(&wanted(), &has, named(e)), along);
}

#[test]
fn a_change_that_is_tried_again_takes_nothing_down_before_its_user_has_moved_off_it() {
    // b depended on a and no longer depends on anything. Its first apply failed halfway.
    let mut now = wanted();
    let mut has = deployed(&now);
    for name in ["a", "c", "d"] {
        now.components.remove(name);
    }
    has.components.retain(|name, _| now.components.contains_key(name) || name == "a");
    now.components.get_mut("b").unwrap().depends_on = BTreeSet::new();
    has.components.get_mut("b").unwrap().fingerprint = None;
    let off = "+b(), -a(b), !seed(a b)";
    assert_eq!(bring_words(&now, &has, Scope::Changed), off);
    let (bring, destroy) = (["b".to_string()].into(), ["a".to_string()].into());
    let undone = RemainingWork {
        deploy: bring,
        destroy,
        actions: vec!["seed".into()],
        ..RemainingWork::default()
    };
    assert_eq!(bring_words(&now, &has, Scope::Undone(undone)), off);
}
