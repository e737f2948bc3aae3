//! `stead audit verify`: verifies the log locally. The server supplies only bytes, never a result.
use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
};

use crate::client::{Fault, Verifier, lines, sanitize};
use clap::Args;
use futures::{Stream, StreamExt, pin_mut, stream};
use proof::{checkpoint::Checkpoint, key::TrustedKey, range::Head};
use schemas::control::audit::{EventRecord, EventsQuery};
use serde_json::json;

use super::{
    keys::{named, open_checkpoint, parse_trusted_keys},
    print_result,
};
use crate::{failure::Failure, render::count, settings::Settings};

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Earlier signed checkpoint: the log must still begin with it
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Trusted checkpoint key: a verifier key, 64 hexadecimal digits, or a fingerprint; may be repeated [default: the
    /// keys of the server]
    #[arg(long)]
    key: Vec<String>,
    /// Verify this exported file instead of the server's log
    #[arg(long, value_name = "FILE", requires = "against", requires = "key")]
    export: Option<PathBuf>,
}

pub(crate) async fn run(settings: &Settings, ask: Verify) -> Result<(), Failure> {
    let note = match &ask.against {
        Some(path) => Some(fs::read_to_string(path).map_err(|e| {
            Failure::Usage(format!("cannot read the checkpoint {}: {e}", path.display()))
        })?),
        None => None,
    };
    let given = parse_trusted_keys(&ask.key)?;
    if let (Some(path), Some(note)) = (&ask.export, &note) {
        let mut lines = BufReader::new(fs::File::open(path)?).lines().peekable();
        let first = lines.peek().and_then(|line| line.as_ref().ok());
        let head = first.and_then(|line| Head::read(line.as_bytes()).ok());
        let kept = open_checkpoint(
            "stored checkpoint",
            note,
            &given,
            &named(head.iter().map(|head| &head.signer)),
        )?;
        // The first line contains the proofs, which only `stead audit check` reads.
        let events = lines.skip(usize::from(head.is_some()));
        let events = stream::iter(events.map(|line| line.map_err(Failure::from)));
        return check(settings, events, None, Some(kept)).await;
    }
    let desk = settings.context()?;
    let now = desk.client.checkpoint().await?;
    let by_server = named([&now.verifier_key].into_iter().chain(&now.former_verifier_keys));
    let (today, ever) = match given.is_empty() {
        true => {
            // The verified server must not select the key unnoticed.
            desk.screen.remark(&format!(
                "Trusting the key that the server returns, {}: compare it with a key from another source, or pass that \
                 one with --key",
                sanitize(&now.verifier_key)
            ));
            // An older key may have signed the stored checkpoint.
            let ever: Vec<_> = by_server.iter().cloned().map(TrustedKey::Verifier).collect();
            (ever[..ever.len().min(1)].to_vec(), ever)
        }
        false => (given.clone(), given),
    };
    let today = open_checkpoint("checkpoint of the server", &now.note, &today, &by_server)?;
    let kept = note
        .as_deref()
        .map(|note| open_checkpoint("stored checkpoint", note, &ever, &by_server))
        .transpose()?;
    let export = desk.client.export(&EventsQuery::default()).await?;
    let events = lines(export).map(|line| line.map_err(Failure::from));
    check(settings, events, Some(today), kept).await
}

/// Verifies every event, and compares the log with the checkpoints at their sizes.
async fn check(
    settings: &Settings,
    events: impl Stream<Item = Result<String, Failure>>,
    today: Option<Checkpoint>,
    kept: Option<Checkpoint>,
) -> Result<(), Failure> {
    let screen = settings.screen();
    let Some(any) = today.as_ref().or(kept.as_ref()) else {
        return Err(Failure::Usage("cannot verify the log: no checkpoint to compare with".into()));
    };
    if let (Some(today), Some(kept)) = (&today, &kept)
        && today.log_id != kept.log_id
    {
        return Err(Failure::Outcome(format!(
            "the stored checkpoint is of {}, but the log of this server is {}",
            kept.origin(),
            today.origin()
        )));
    }
    let bar = screen.bar(any.size, "verify");
    let mut verifier = Verifier::new(&any.log_id);
    let compare = |verifier: &Verifier, checkpoint: &Option<Checkpoint>| match checkpoint {
        Some(checkpoint) if checkpoint.size == verifier.size() => verifier.agrees(checkpoint),
        Some(_) | None => Ok(()),
    };
    pin_mut!(events);
    let mut faults: Result<(), Fault> =
        compare(&verifier, &kept).and_then(|()| compare(&verifier, &today));
    while let (Ok(()), Some(line)) = (&faults, events.next().await) {
        let event: EventRecord = serde_json::from_str(&line?)?;
        faults = verifier.take(&event);
        faults = faults.and_then(|()| compare(&verifier, &kept));
        faults = faults.and_then(|()| compare(&verifier, &today));
        bar.set_position(verifier.size());
        if today.as_ref().is_some_and(|today| today.size == verifier.size()) {
            break;
        }
    }
    bar.finish_and_clear();
    for checkpoint in [&today, &kept].into_iter().flatten() {
        if faults.is_ok() && verifier.size() < checkpoint.size {
            faults = verifier.agrees(checkpoint);
        }
    }
    if let Err(fault) = faults {
        return Err(Failure::Outcome(sanitize(&fault.to_string())));
    }
    if let Some(false_reports) = forged_reports_text(&verifier) {
        return Err(Failure::Outcome(sanitize(&false_reports)));
    }
    let (size, root) = (verifier.size(), hex::encode(verifier.root()));
    let mut text =
        format!("Verified {} of {}: leaves, chain and tree.\n", count(size, "event"), any.origin());
    text += &format!("  root      {root}\n");
    let tally = verifier.tally();
    text += &format!(
        "  signed    {} by runners, with keys that were valid then\n",
        count(tally.signed, "report")
    );
    if let Some(first) = tally.first_unsigned {
        text += &format!(
            "  unsigned  {} without a runner's signature, the first at position {first}: it relies on the server alone\n",
            count(tally.unsigned, "result"),
        );
    }
    if let Some(kept) = &kept {
        text += &format!("  unchanged since the stored checkpoint at {}\n", kept.size);
    }
    // No signature covers the events of an export after the stored checkpoint.
    let signed = today.as_ref().or(kept.as_ref()).map_or(0, |last| last.size);
    let unsigned = size.saturating_sub(signed);
    if unsigned > 0 {
        text += &format!(
            "  the last {unsigned} are after the checkpoint: their hashes are valid, but no signature covers them\n"
        );
    }
    let said = json!({
        "verified": size, "unsigned": unsigned, "log": any.origin(), "root": root,
        "unchanged_since": kept.as_ref().map(|k| k.size),
        "signed_reports": tally.signed, "unsigned_results": tally.unsigned,
        "first_unsigned_result": tally.first_unsigned,
    });
    print_result(&screen, &said, &text)
}

/// Describes the forged reports.
fn forged_reports_text(verifier: &Verifier) -> Option<String> {
    let (first, more) = verifier.forged_reports().split_first()?;
    let mut said = first.to_string();
    if !more.is_empty() {
        let places: Vec<_> = more.iter().map(|wrong| wrong.position.to_string()).collect();
        said += &format!("\nalso at positions {}", places.join(", "));
    }
    Some(format!(
        "{said}\nThe hashes of the log are valid, so a party that can write the log forged this. The runner's own record is \
         its journal: stead-runner journal, in the customer's account"
    ))
}
