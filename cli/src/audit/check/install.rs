//! History of an install from its bundle, and the statements that the bundle proves.
use crate::client::{ProvenHistory, sanitize};
use proof::bundle::{Bundle, Complete, VerifiedBundle};
use schemas::control::history::RunActivity;

use super::{
    CheckReport, added, always, events, is_complete, note_stored_checkpoint, signed, streams,
};
use crate::{
    audit::diff,
    render::{Screen, Table, Tone, moment_or_dash},
};

/// Formats the history for a terminal. The strings of `history` are already sanitized.
pub(crate) fn text(history: &ProvenHistory, screen: &Screen) -> String {
    let mut text = String::new();
    for run in &history.runs {
        text += &diff::run_text(run, &jobs(run, history, screen), screen);
    }
    if !history.other_events.is_empty() {
        text += &format!("\n{}\n", screen.paint(Tone::Strong, "Events outside of runs"));
        text += &diff::indented(&diff::events(&history.other_events), screen);
    }
    text + "\n"
}

fn jobs(run: &RunActivity, history: &ProvenHistory, screen: &Screen) -> Table {
    let mut table = Table::new(["JOB", "STEP", "OUTCOME", "ENDED", "SIGNED BY", "ID"]);
    for job in &run.jobs {
        let signed_by = match (job.runner, history.signed.contains(&job.job)) {
            (Some(runner), true) => runner.to_string(),
            (Some(_) | None, _) => String::new(),
        };
        table.row([
            job.kind.clone(),
            job.name.clone().unwrap_or_default(),
            diff::outcome(job, screen),
            moment_or_dash(job.ended_at.as_ref()),
            signed_by,
            job.job.to_string(),
        ]);
    }
    table
}

/// Describes the statements that a bundle of an install proves.
pub(crate) fn install_report(
    bundle: &Bundle,
    proven: &VerifiedBundle,
    history: Option<ProvenHistory>,
) -> CheckReport {
    let (checkpoint, subject) = (&proven.checkpoint, sanitize(&bundle.subject.to_string()));
    let (mut holds, mut open) = (vec![signed(&proven.signer.to_string(), checkpoint)], vec![]);
    holds.push(format!(
        "the log contains {} of {subject} from this file, in {} streams",
        events(bundle.events.len() as u64),
        proven.streams.len()
    ));
    for stream in &proven.streams {
        let (name, count) = (sanitize(&stream.stream), events(stream.events));
        match &stream.complete {
            Complete::Unknown { last } => {
                open.push(format!("that {name} ({count}) has no event after position {last}"))
            }
            Complete::FromSequences { .. } | Complete::Whole => {
                holds.push(format!("{name}: complete, {count}"));
            }
            Complete::NotApplicable => {}
        }
    }
    match &proven.complete {
        Complete::FromSequences { from } => open.push(format!(
            "that no sequence of a stream was assigned twice before position {from}: the log guarantees it, and \
             `stead audit verify`, or a bundle with --other-entries all, verifies it"
        )),
        Complete::NotApplicable | Complete::Unknown { .. } | Complete::Whole => {}
    }
    let unread = match &history {
        Some(history) => {
            holds.push(
                "the file contains every stream that the events refer to: every run, its jobs and builds, and each \
                 runner that ran a job"
                    .into(),
            );
            let signed = history.signed.len();
            holds.push(format!(
                "results of jobs with a signature of the runner that ran them: {signed}"
            ));
            if history.unsigned > 0 {
                let unsigned = history.unsigned;
                open.push(format!("results of jobs without a signature of a runner: {unsigned}"));
            }
            if let Some(first) = history.unreadable.first() {
                open.push(format!(
                    "the contents of {}, the first at position {first}: this version of stead cannot read them",
                    events(history.unreadable.len() as u64)
                ));
            }
            !history.unreadable.is_empty()
        }
        None => {
            open.push(
                "that the file contains all runs, jobs and builds: the events that refer to them are hashes"
                    .into(),
            );
            true
        }
    };
    if let Some(since) = &proven.since {
        holds.push(format!("the log only grew since the older checkpoint at {}", since.size));
    }
    added(bundle, &mut open);
    note_stored_checkpoint(proven.stored.as_ref().map(|stored| stored.size), &mut holds, &mut open);
    always(checkpoint.size, proven.other_signatures, &mut open);
    CheckReport {
        subject,
        log: checkpoint.origin(),
        size: checkpoint.size,
        root: hex::encode(checkpoint.root),
        signer: proven.signer.to_string(),
        complete: is_complete(&proven.complete).map(|complete| complete && !unread),
        streams: streams(proven),
        history,
        proven: holds,
        not_proven: open,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::render::Output;

    const ULID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    const AT: &str = "2026-11-20T12:00:00.000000Z";

    #[test]
    fn history_shows_approvals_jobs_and_signatures() {
        let digest = format!("sha256:{:064x}", 7);
        let job = |name: &str, end: &str| {
            json!({
                "job": format!("job_{}{end}", &ULID[..25]), "kind": "apply", "name": name,
                "runner": format!("rnr_{ULID}"), "attempts": 1, "outcome": "succeeded", "ended_at": AT,
            })
        };
        let history: ProvenHistory = serde_json::from_value(json!({
            "runs": [{
                "run": format!("run_{ULID}"), "kind": "provision", "requested_by": "policy:provision",
                "requested_at": AT, "outcome": "succeeded", "ended_at": AT,
                "interventions": [{
                    "kind": "approved", "step_name": "network", "digest": digest, "by": format!("prn_{ULID}"),
                    "by_name": "Ann Lee", "reason": "read it", "at": AT, "position": 9,
                }],
                "jobs": [job("network", "V"), job("edge", "W")], "components": [], "events": [],
            }],
            "other_events": [], "signed": [format!("job_{ULID}")], "unsigned": 1, "unreadable": [],
        }))
        .unwrap();
        let text = text(&history, &Screen::new(Output::Table, true, true));
        let expected =
            ["provision", "by policy:provision", "approved network", "Ann Lee", ": read it"];
        for expected in expected.into_iter().chain([&*digest]) {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let signed_by = |name: &str| {
            let line = text.lines().find(|line| line.contains(name) && line.contains("apply"));
            line.unwrap().contains(&format!("rnr_{ULID}"))
        };
        assert!(signed_by("network") && !signed_by("edge"), "{text}");
    }
}
