//! Destruction of components with a dependency cycle.
use std::collections::BTreeSet;

use super::{
    digest,
    planning::{bring_words, ids, words},
};
use crate::{
    ids::{BuildId, ComponentId},
    run::plan::*,
};

#[test]
fn what_needs_one_of_a_circle_goes_before_all_of_it() {
    // An upgrade that reverses a dependency failed halfway, so that a and b may depend on each
    // other.
    let component = |n: u8, depends_on: &[&str]| ActualComponent {
        component: ComponentId(ulid::Ulid(u128::from(n))),
        build: BuildId(ulid::Ulid(u128::from(n))),
        fingerprint: None,
        depends_on: depends_on.iter().map(|need| need.to_string()).collect(),
        stale_outputs: StaleOutputs::default(),
    };
    let all = [
        ("1web", component(1, &["a"])),
        ("a", component(2, &["b", "net"])),
        ("b", component(3, &["a"])),
        ("net", component(4, &[])),
        ("zweb", component(5, &["1web", "b"])),
    ];
    let has = ActualState {
        sandbox: None,
        components: all.into_iter().map(|(name, c)| (name.to_string(), c)).collect(),
    };
    let down = "-zweb(), -1web(zweb), -b(1web zweb), -a(1web b zweb), -net(a)";
    assert_eq!(words(&teardown(&has, &Scope::Everything, ids())), down);
    // A planned dependent of one member is applied before the whole cycle is destroyed.
    let user = DesiredComponent {
        component: ComponentId(ulid::Ulid(1)),
        build: BuildId(ulid::Ulid(1)),
        depends_on: BTreeSet::new(),
        reads_sandbox: false,
        fingerprint: digest(1),
    };
    let components = [("1web".to_string(), user)].into();
    let now = DesiredState { components, ..DesiredState::default() };
    let off = "-zweb(), +1web(), -b(1web zweb), -a(1web b zweb), -net(a)";
    assert_eq!(bring_words(&now, &has, Scope::Changed), off);
}
