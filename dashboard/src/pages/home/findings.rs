//! Failed runs by cause, and installs with drift.
use std::collections::BTreeMap;

use maud::{Markup, html};
use schemas::control::{installs::ComponentDrift, runs::RunSummary};

use crate::{components, frame::Caller};

/// Install with components that differ from their config.
#[derive(Debug, Clone)]
pub struct DriftedInstall {
    /// Newest check that found drift.
    pub check: RunSummary,
    /// Components that were not deployed since.
    pub components: BTreeMap<String, ComponentDrift>,
}

/// Failed runs with one cause, newest first.
struct Group<'r> {
    step: &'r str,
    reason: &'r str,
    runs: Vec<&'r RunSummary>,
}

/// Maximum number of runs of one cause that the page names.
const RUNS: usize = 5;
/// Maximum number of characters of a cause.
const CAUSE: usize = 240;
/// Length from which a word with a digit counts as an id, which differs between equal failures.
const ID_LENGTH: usize = 8;

/// Table of the causes, the most frequent first.
pub(super) fn failures(caller: &Caller, failed: &[RunSummary]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Failed runs by cause" {
            table {
                thead { tr { th scope="col" { "Cause" } th.number scope="col" { "Installs" } th scope="col" { "Runs" } th scope="col" { "Newest" } } }
                tbody id="failed-rows" data-rows="rows" {
                    @for group in groups(failed) {
                        @let newest = group.runs[0];
                        tr id={ "failed-" (newest.id) } {
                            td.long {
                                strong { (group.step) } " "
                                span { (shortened(group.reason)) }
                            }
                            td.number { (installs(&group)) }
                            td {
                                ul.plain {
                                    @for run in group.runs.iter().take(RUNS) {
                                        li { a href={ "/ui/runs/" (run.id) } title=(run.id) { (components::kind(&run.kind)) " of " (run.install_name) } }
                                    }
                                    @if group.runs.len() > RUNS { li.muted { "and " (group.runs.len() - RUNS) " more" } }
                                }
                            }
                            td.fit { (components::time(caller.now, newest.ended_at.unwrap_or(newest.requested_at))) }
                        }
                    }
                }
            }
        }
    }
}

/// Groups the runs by their failed step and reason. Ids, addresses and the name of the install do not
/// separate two groups.
fn groups(failed: &[RunSummary]) -> Vec<Group<'_>> {
    let mut groups: Vec<(String, Group<'_>)> = Vec::new();
    for run in failed {
        let (step, reason) = match &run.failure {
            Some(failure) => (failure.step.as_str(), failure.reason.as_str()),
            None => ("run", "failed without a failed step"),
        };
        let cause = format!("{step} {}", general(reason, &run.install_name));
        match groups.iter_mut().find(|(of, _)| *of == cause) {
            Some((_, group)) => group.runs.push(run),
            None => groups.push((cause, Group { step, reason, runs: vec![run] })),
        }
    }
    let mut groups: Vec<_> = groups.into_iter().map(|(_, group)| group).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(installs(group)));
    groups
}

fn installs(group: &Group<'_>) -> usize {
    let mut ids: Vec<_> = group.runs.iter().map(|run| run.install).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.len()
}

/// Reason without the parts that differ between installs.
fn general(reason: &str, install: &str) -> String {
    let is_id = |word: &str| word.len() >= ID_LENGTH && word.contains(|c: char| c.is_ascii_digit());
    let word = |word: &str| match is_id(word) || (!install.is_empty() && word.contains(install)) {
        true => "…".to_owned(),
        false => word.to_owned(),
    };
    reason.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(CAUSE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Table of the installs with drift.
pub(super) fn drift(caller: &Caller, drifted: &[DriftedInstall]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Installs with drift" {
            table {
                thead { tr { th scope="col" { "Install" } th scope="col" { "Components" } th scope="col" { "Differences" } th scope="col" { "Check" } th scope="col" { "Found" } } }
                tbody id="drift-rows" data-rows="rows" {
                    @for install in drifted {
                        @let check = &install.check;
                        @let all = || install.components.values();
                        tr id={ "drift-" (check.install) } {
                            td.name { a href={ "/ui/installs/" (check.install) } { (check.install_name) } }
                            td { (install.components.keys().map(String::as_str).collect::<Vec<_>>().join(", ")) }
                            td.fit { (components::changes(all().map(|of| of.add).sum(), all().map(|of| of.change).sum(), all().map(|of| of.destroy).sum())) }
                            td.fit { (components::run_link(&check.id)) }
                            td.fit { @if let Some(at) = all().map(|of| of.found_at).max() { (components::time(caller.now, at)) } }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_the_install_do_not_separate_causes() {
        let one = general("apply failed in i-0a1b2c3d of acme-net: exit code 1", "acme");
        assert_eq!(one, general("apply failed in i-9f8e7d6c of globex-net: exit code 1", "globex"));
        assert_ne!(one, general("apply failed in i-9f8e7d6c of globex-net: exit code 2", "globex"));
        assert_eq!(general("a  b", ""), "a b");
    }

    #[test]
    fn long_cause_is_cut_at_a_character() {
        assert_eq!(shortened(&"é".repeat(CAUSE)).chars().count(), CAUSE);
        assert_eq!(shortened(&"é".repeat(CAUSE + 1)).chars().count(), CAUSE + 1);
    }
}
