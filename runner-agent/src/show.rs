//! What a customer sees of the runner, without any server.
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use schemas::moment;

use crate::{ask, data::Data, enrol, journal, supervisor::adopt, switch, witness::Witness};

/// Who this runner is, and what it is doing.
pub fn status(data: &Data) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let Some(identity) = enrol::known(data)? else {
        writeln!(out, "not enrolled")?;
        return Ok(ExitCode::FAILURE);
    };
    writeln!(out, "runner    {}", identity.runner)?;
    if let Some(install) = identity.install {
        writeln!(out, "install   {install}")?;
    }
    writeln!(out, "server    {}", identity.server)?;
    let agent = if data.lock()?.is_none() { "running" } else { "not running" };
    writeln!(out, "agent     {agent}")?;
    match switch::off(data) {
        Some(off) => {
            writeln!(out, "switch    off since {}: {}", moment::text(&off.at), off.reason)?;
        }
        None => writeln!(out, "switch    on")?,
    }
    let known = adopt::fold(journal::read(&data.path("journal.ndjson")).unwrap_or_default());
    writeln!(out, "jobs      {}", known.len())?;
    for known in known {
        let state = serde_json::to_value(known.state(data))?;
        let execution = known.execution.map(|execution| execution.to_string());
        let (execution, state) =
            (execution.unwrap_or_default(), state.as_str().unwrap_or_default());
        writeln!(out, "          {} {execution} {state}", known.job)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What happened here.
pub fn journal(data: &Data, json: bool, last: Option<usize>) -> anyhow::Result<ExitCode> {
    let entries = journal::read_all(data)?;
    let skip = last.map_or(0, |last| entries.len().saturating_sub(last));
    let mut out = io::stdout().lock();
    for entry in entries.into_iter().skip(skip) {
        let line = serde_json::to_value(&entry)?;
        if json {
            writeln!(out, "{line}")?;
            continue;
        }
        let members = line.as_object().into_iter().flatten();
        let rest = members.filter(|(key, _)| !matches!(key.as_str(), "at" | "entry")).map(
            |(key, value)| match value.as_str() {
                Some(text) => format!(" {key}={}", text.escape_debug()),
                None => format!(" {key}={value}"),
            },
        );
        let word = line.get("entry").and_then(|word| word.as_str()).unwrap_or_default();
        writeln!(out, "{} {word:<14}{}", moment::text(&entry.at), rest.collect::<String>())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What waits for a person's word.
pub fn questions(data: &Data) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    for question in ask::waiting(data)? {
        let subject = question.subject.unwrap_or_default();
        let (execution, kind) = (question.execution, question.kind.word());
        writeln!(out, "{execution} {kind} {} {subject}", question.plugin)?;
        if let Some(plan) = question.plan {
            writeln!(out, "    plan {plan}")?;
        }
        writeln!(out, "    until {}", moment::text(&question.deadline))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The last checkpoint.
pub fn checkpoint(data: &Data) -> anyhow::Result<ExitCode> {
    match Witness::of(data).last()? {
        Some(note) => {
            print!("{note}");
            Ok(ExitCode::SUCCESS)
        }
        None => {
            println!("no checkpoint seen yet");
            Ok(ExitCode::SUCCESS)
        }
    }
}
