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
    keys::{open_checkpoint, parse_trusted_keys, parse_verifier_keys},
    print_result,
};
use crate::{failure::Failure, render::count, settings::Settings};

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Earlier signed checkpoint; the log must still begin with the same events
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Trusted checkpoint key: a verifier key, 64 hexadecimal digits, or a fingerprint; may be
    /// repeated [default: the keys of the server]
    #[arg(long)]
    key: Vec<String>,
    /// Verify this exported file instead of the server's log
    #[arg(long, value_name = "FILE", requires = "against", requires = "key")]
    export: Option<PathBuf>,
}

pub(crate) async fn run(settings: &Settings, args: Verify) -> Result<(), Failure> {
    let note = match &args.against {
        Some(path) => Some(fs::read_to_string(path).map_err(|e| {
            Failure::Usage(format!("cannot read the checkpoint {}: {e}", path.display()))
        })?),
        None => None,
    };
    let trusted = parse_trusted_keys(&args.key)?;
    if let (Some(path), Some(note)) = (&args.export, &note) {
        let mut lines = BufReader::new(fs::File::open(path).map_err(|e| {
            Failure::Usage(format!("cannot read the export {}: {e}", path.display()))
        })?)
        .lines()
        .peekable();
        let first = lines.peek().and_then(|line| line.as_ref().ok());
        let head = first.and_then(|line| Head::read(line.as_bytes()).ok());
        let stored = open_checkpoint(
            "stored checkpoint",
            note,
            &trusted,
            &parse_verifier_keys(head.iter().map(|head| &head.signer)),
        )?;
        // The first line contains the proofs. This command does not verify them.
        let events = lines.skip(usize::from(head.is_some()));
        let events = stream::iter(events.map(|line| line.map_err(Failure::from)));
        return check(settings, events, None, Some(stored)).await;
    }
    let context = settings.context()?;
    let now = context.client.checkpoint().await?;
    let keys_of_server =
        parse_verifier_keys([&now.verifier_key].into_iter().chain(&now.former_verifier_keys));
    let (today, ever) = match trusted.is_empty() {
        true => {
            // The server under verification selects this key, so the user must see it.
            context.screen.remark(&format!(
                "Trusting the key from the server, {}: compare it with a key from another source, or pass a trusted key \
                     with --key",
                sanitize(&now.verifier_key)
            ));
            // An older key may have signed the stored checkpoint.
            let ever: Vec<_> = keys_of_server.iter().cloned().map(TrustedKey::Verifier).collect();
            (ever[..ever.len().min(1)].to_vec(), ever)
        }
        false => (trusted.clone(), trusted),
    };
    let today = open_checkpoint("checkpoint of the server", &now.note, &today, &keys_of_server)?;
    let stored = note
        .as_deref()
        .map(|note| open_checkpoint("stored checkpoint", note, &ever, &keys_of_server))
        .transpose()?;
    let export = context.client.export(&EventsQuery::default()).await?;
    let events = lines(export).map(|line| line.map_err(Failure::from));
    check(settings, events, Some(today), stored).await
}

/// Verifies the events up to the server's checkpoint, or all events of an export. Compares the log
/// with each checkpoint at its size.
async fn check(
    settings: &Settings,
    events: impl Stream<Item = Result<String, Failure>>,
    today: Option<Checkpoint>,
    stored: Option<Checkpoint>,
) -> Result<(), Failure> {
    let screen = settings.screen();
    let Some(newest) = today.as_ref().or(stored.as_ref()) else {
        return Err(Failure::Usage(
            "cannot verify the log: there is no checkpoint to compare with; pass --against".into(),
        ));
    };
    if let (Some(today), Some(stored)) = (&today, &stored)
        && today.log_id != stored.log_id
    {
        return Err(Failure::Outcome(format!(
            "the log does not continue the stored checkpoint: the checkpoint is of {}, but the log of this server is {}",
            stored.origin(),
            today.origin()
        )));
    }
    let bar = screen.bar(newest.size, "verify");
    let mut verifier = Verifier::new(&newest.log_id);
    let compare = |verifier: &Verifier, checkpoint: &Option<Checkpoint>| match checkpoint {
        Some(checkpoint) if checkpoint.size == verifier.size() => verifier.agrees(checkpoint),
        Some(_) | None => Ok(()),
    };
    pin_mut!(events);
    let mut faults: Result<(), Fault> =
        compare(&verifier, &stored).and_then(|()| compare(&verifier, &today));
    while let (Ok(()), Some(line)) = (&faults, events.next().await) {
        let event: EventRecord = serde_json::from_str(&line?)?;
        faults = verifier.take(&event);
        faults = faults.and_then(|()| compare(&verifier, &stored));
        faults = faults.and_then(|()| compare(&verifier, &today));
        bar.set_position(verifier.size());
        if today.as_ref().is_some_and(|today| today.size == verifier.size()) {
            break;
        }
    }
    bar.finish_and_clear();
    for checkpoint in [&today, &stored].into_iter().flatten() {
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
    let mut text = format!(
        "Verified {} of {}: leaves, chain and tree.\n",
        count(size, "event"),
        newest.origin()
    );
    text += &format!("  root      {root}\n");
    let tally = verifier.tally();
    text += &format!(
        "  signed    {} by runners, with keys that were valid at that time\n",
        count(tally.signed, "report")
    );
    if let Some(first) = tally.first_unsigned {
        text += &format!(
            "  unsigned  {} without a runner's signature, the first at position {first}: only the server vouches for these\n",
            count(tally.unsigned, "result"),
        );
    }
    if let Some(stored) = &stored {
        text += &format!("  unchanged since the stored checkpoint at {}\n", stored.size);
    }
    // No signature covers the events of an export after the stored checkpoint.
    let signed = today.as_ref().or(stored.as_ref()).map_or(0, |last| last.size);
    let unsigned = size.saturating_sub(signed);
    if unsigned > 0 {
        text += &format!(
            "  events after the checkpoint: {unsigned}; their hashes are valid, but no signature covers them\n"
        );
    }
    let result = json!({
        "verified": size, "unsigned": unsigned, "log": newest.origin(), "root": root,
        "unchanged_since": stored.as_ref().map(|k| k.size),
        "signed_reports": tally.signed, "unsigned_results": tally.unsigned,
        "first_unsigned_result": tally.first_unsigned,
    });
    print_result(&screen, &result, &text)
}

/// Text about the forged reports. `None` without forged reports.
fn forged_reports_text(verifier: &Verifier) -> Option<String> {
    let (first, more) = verifier.forged_reports().split_first()?;
    let mut text = first.to_string();
    if !more.is_empty() {
        let positions: Vec<_> = more.iter().map(|wrong| wrong.position.to_string()).collect();
        text += &format!("\nalso at positions {}", positions.join(", "));
    }
    Some(format!(
        "{text}\nThe hashes of the log are valid, so the forger can write to the log. Compare the log with the runner's own \
         record in the customer's account: stead-runner journal"
    ))
}
