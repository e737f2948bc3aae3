//! `stead subjects`: personal data of data subjects, and its erasure.
use std::io::IsTerminal as _;

use clap::{Args, Subcommand};
use domain::subject::SubjectId;
use schemas::control::{ReasonBody, subjects::Subject};

use crate::{
    failure::Failure,
    render::{moment_or_dash, write},
    settings::{CommandContext, Settings},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Subjects {
    /// Show whether the data of a subject is readable, and who shredded it
    #[command(after_help = "Example:\n  stead subjects show ins_01JD…")]
    Show {
        /// Id of an install or principal
        subject: SubjectId,
    },
    /// Delete the key of a subject: its encrypted data becomes permanently unreadable
    #[command(after_help = "\
Examples:
  stead subjects shred ins_01JD… --reason 'contract ended, requested on 3 May'
  stead subjects shred prn_01JD… --reason 'has left' --yes

The data of an install are inputs, outputs, job logs, manifests, plans and reasons. The data of a principal are its \
name, and the reasons that it wrote. The log, its proofs and its checkpoints stay valid.

Run the command again to erase copies that exist again, for example after a restore. docs/security.md lists copies that \
the command cannot erase, such as backups, exports and bundles.")]
    Shred(Shred),
}

#[derive(Debug, Args)]
pub(crate) struct Shred {
    /// Id of a deprovisioned install, or of a principal without active tokens
    subject: SubjectId,
    /// Reason, recorded in the log; do not repeat personal data in it
    #[arg(long)]
    reason: String,
    /// Skip the confirmation prompt
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(verb: Subjects, settings: &Settings) -> Result<(), Failure> {
    let context = settings.context()?;
    match verb {
        Subjects::Show { subject } => {
            let record = context.client.subject(subject).await?;
            context.screen.print_one(&record, |_| text(&record))
        }
        Subjects::Shred(args) => shred(&context, args).await,
    }
}

async fn shred(context: &CommandContext, args: Shred) -> Result<(), Failure> {
    let subject = args.subject;
    if !args.yes && !confirmed(subject)? {
        return Err(Failure::Outcome("not confirmed: nothing was shredded".into()));
    }
    let done = context.client.shred(subject, &ReasonBody { reason: Some(args.reason) }).await?;
    let already = if done.changed {
        "is shredded."
    } else {
        "was already shredded. Its copies are erased again."
    };
    context.screen.print_one(&done, |_| {
        format!("{subject} {already} `stead subjects show {subject}` shows when no copy is left.\n")
    })
}

/// Asks for confirmation. Fails without a terminal, where `--yes` is required.
fn confirmed(subject: SubjectId) -> Result<bool, Failure> {
    if !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
        return Err(Failure::Usage(
            "cannot ask for confirmation: no terminal, and shredding cannot be undone\n  try: --yes".into(),
        ));
    }
    write(&format!("This makes all data of {subject} permanently unreadable. Shred it? [y/N] "))?;
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.map_err(|error| Failure::Usage(format!("cannot read the confirmation: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn text(record: &Subject) -> String {
    let mut text = format!("{}  {}\n", record.subject, record.state);
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text += &format!("  {name:<9}  {value}\n");
        }
    };
    if record.shredded_at.is_some() {
        line("shredded", &moment_or_dash(record.shredded_at.as_ref()));
        line("by", record.by_name.as_ref().or(record.by.as_ref()).map_or("", String::as_str));
        line("reason", record.reason.as_deref().unwrap_or_default());
        line("erased", &moment_or_dash(record.erased_at.as_ref()));
    }
    text
}
