//! Output of the commands for the customer. They need no server.
mod approval_screen;
mod journal;

pub(crate) mod status;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use domain::ids::JobId;
use schemas::{moment, runner::ExecutionState, sanitize::sanitize};

use crate::{
    approval,
    cli::Output,
    data::Data,
    disable, enrol,
    supervisor::recover,
    witness::{StoredEvidence, Witness},
};

/// Prints the identity of this runner and its current state.
pub fn status(data: &Data) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let Some(identity) = enrol::stored_identity(data)? else {
        writeln!(out, "not enrolled; the data directory is {}", data.root().display())?;
        return Ok(ExitCode::FAILURE);
    };
    writeln!(out, "runner    {}", identity.runner)?;
    if let Some(install) = identity.install {
        writeln!(out, "install   {install}")?;
    }
    writeln!(out, "server    {}", identity.server)?;
    writeln!(out, "data      {}", data.root().display())?;
    let agent = if data.lock()?.is_none() { "running" } else { "not running" };
    writeln!(out, "agent     {agent}")?;
    match disable::disabled(data) {
        Some(file) => {
            writeln!(out, "disabled  since {}: {}", moment::text(&file.at), file.reason)?;
        }
        None => writeln!(out, "enabled   yes")?,
    }
    writeln!(out, "policy    {}", status::policy(data))?;
    if let Some(recovery) = status::recovery(data, &identity) {
        writeln!(out, "recovery  {recovery}")?;
    }
    writeln!(out, "journal   {}", status::journal(data))?;
    writeln!(out, "witness   {}", status::witness(data)?)?;
    for line in status::disk(data)? {
        writeln!(out, "{line}")?;
    }
    let claims =
        recover::fold(crate::journal::read(&data.path("journal.ndjson")).unwrap_or_default());
    let waiting: Vec<_> =
        approval::pending(data)?.into_iter().map(|request| Some(request.execution)).collect();
    writeln!(out, "jobs      {}", claims.len())?;
    for claim in claims {
        let state = match claim.state(data)? {
            ExecutionState::NeverSpawned if waiting.contains(&claim.execution) => {
                "waits for your approval: `stead-runner approvals`"
            }
            ExecutionState::NeverSpawned => "not started",
            ExecutionState::Alive => "running",
            ExecutionState::Exited => "finished, not yet reported",
            ExecutionState::Unknown => "outcome unknown",
        };
        let execution = claim.execution.map(|execution| execution.to_string());
        let execution = execution.unwrap_or_default();
        writeln!(out, "          {} {execution} {state}", claim.job)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the journal entries of a job or of all jobs; with `last`, only the last ones.
pub(crate) fn journal(
    data: &Data,
    output: Output,
    job: Option<JobId>,
    last: Option<usize>,
) -> anyhow::Result<ExitCode> {
    let lines = journal::of(crate::journal::read_all(data)?, job, last);
    print(&match output {
        Output::Table => journal::table(&lines),
        Output::Json => lines.into_iter().map(|entry| entry.line.text + "\n").collect::<String>(),
    })
}

pub(crate) fn print(text: &str) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the jobs that wait for an approval on this host.
pub fn approvals(data: &Data) -> anyhow::Result<ExitCode> {
    let requests = approval::pending(data)?;
    if requests.is_empty() {
        // Standard output has the approval requests only.
        eprintln!("no job waits for your approval");
    }
    print(&requests.iter().map(approval_screen::screen).collect::<String>())
}

/// Prints the newest verified head, and a later rejection on standard error.
pub fn checkpoint(data: &Data) -> anyhow::Result<ExitCode> {
    let note = Witness::of(data).last()?;
    let code = match note {
        // Standard output has the signed note only, because users store and compare it.
        Some(note) => print(&sanitized(&note))?,
        None => {
            eprintln!("no checkpoint received yet; run the command again after the first job");
            ExitCode::FAILURE
        }
    };
    if let Some(rejection) = status::rejection(data)? {
        eprintln!("{rejection}");
    }
    Ok(code)
}

/// Removes control characters from text of several lines. A valid signed note has none and stays
/// unchanged.
pub(crate) fn sanitized(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(line) => sanitize(line) + "\n",
            None => sanitize(line),
        })
        .collect()
}

/// Prints the evidence of rejected logs.
pub(crate) fn evidence(data: &Data, output: Output) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let stored = Witness::of(data).evidence()?;
    if stored.is_empty() && output == Output::Table {
        writeln!(
            out,
            "no log was rejected: every head that the server sent continues the earlier heads"
        )?;
    }
    for StoredEvidence { path, evidence } in stored {
        match output {
            Output::Json => writeln!(out, "{}", serde_json::to_string(&evidence)?)?,
            Output::Table => {
                let at = moment::text(&evidence.at);
                writeln!(out, "{at}  {}  {}", evidence.job, sanitize(&evidence.rule))?;
                writeln!(out, "    {}", sanitize(&evidence.explanation))?;
                writeln!(out, "    both heads and the proofs: {}", path.display())?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
