//! Destruction of components with a dependency cycle.
use std::collections::BTreeSet;

use super::{
    digest,
    planning::{deploy_text, ids, steps_text},
};
use crate::{
    ids::{BuildId, ComponentId},
    run::plan::*,
};

#[test]
fn dependents_of_a_cycle_member_are_destroyed_before_the_cycle() {
    // An upgrade that reverses a dependency failed halfway, so that a and b may depend on each
    // other.
    let component = |n: u8, depends_on: &[&str]| ActualComponent {
        component: ComponentId(ulid::Ulid(u128::from(n))),
        build: BuildId(ulid::Ulid(u128::from(n))),
        fingerprint: None,
        depends_on: depends_on.iter().map(|dependency| dependency.to_string()).collect(),
        stale_outputs: StaleOutputs::default(),
    };
    let all = [
        ("1web", component(1, &["a"])),
        ("a", component(2, &["b", "net"])),
        ("b", component(3, &["a"])),
        ("net", component(4, &[])),
        ("zweb", component(5, &["1web", "b"])),
    ];
    let actual = ActualState {
        sandbox: None,
        components: all.into_iter().map(|(name, c)| (name.to_string(), c)).collect(),
    };
    let teardown_text = "-zweb(), -1web(zweb), -b(1web zweb), -a(1web b zweb), -net(a)";
    assert_eq!(steps_text(&teardown(&actual, &Scope::Everything, ids())), teardown_text);
    // A planned dependent of one member is applied before the whole cycle is destroyed.
    let user = DesiredComponent {
        component: ComponentId(ulid::Ulid(1)),
        build: BuildId(ulid::Ulid(1)),
        depends_on: BTreeSet::new(),
        reads_sandbox: false,
        fingerprint: digest(1),
    };
    let components = [("1web".to_string(), user)].into();
    let desired = DesiredState { components, ..DesiredState::default() };
    let deploy_expected = "-zweb(), +1web(), -b(1web zweb), -a(1web b zweb), -net(a)";
    assert_eq!(deploy_text(&desired, &actual, Scope::Changed), deploy_expected);
}
