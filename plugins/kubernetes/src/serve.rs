//! Loop over the calls of the runner.

use std::{io, time::Duration};

use schemas::plugin::{Call, CallContext, Described, ErrorCode, Request};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    failure::{Failure, Outcome},
    report,
};

/// Protocol versions that the plugin supports.
const PROTOCOLS: [u32; 2] = [1, 2];
/// Timeout of an open call after the end of standard input.
const EXIT_TIMEOUT: Duration = Duration::from_secs(4);

/// Runs a plugin: responds to calls until standard input ends.
pub fn run(respond: impl AsyncFn(&Call, &CancellationToken) -> Outcome<Value>) -> io::Result<()> {
    // The HTTP client uses this crypto provider.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(respond))
}

/// Responds to calls until standard input ends.
///
/// A cancel and the end of standard input stop the open call. After the end of standard input, no
/// effect may start, because no runner reads its result.
async fn serve(
    respond: impl AsyncFn(&Call, &CancellationToken) -> Outcome<Value>,
) -> io::Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    // From version 2, a runner reads long values from files.
    let mut reads_files = false;
    while let Some(line) = lines.next_line().await? {
        let request = match parse(&line) {
            Ok(Request { call: Call::Cancel { .. }, .. }) => continue,
            Ok(request) => request,
            Err(failure) => {
                report::answer(0, Err(failure), None)?;
                continue;
            }
        };
        let stop = CancellationToken::new();
        let response = respond(&request.call, &stop);
        tokio::pin!(response);
        let mut exit_at: Option<Instant> = None;
        let result = loop {
            let exit = exit_at.unwrap_or_else(|| Instant::now() + EXIT_TIMEOUT);
            tokio::select! {
                result = &mut response => break result,
                line = lines.next_line(), if exit_at.is_none() => match line? {
                    Some(line) => {
                        if matches!(parse(&line), Ok(Request { call: Call::Cancel { .. }, .. })) {
                            stop.cancel();
                        }
                    }
                    None => {
                        exit_at = Some(exit);
                        stop.cancel();
                    }
                },
                () = sleep_until(exit), if exit_at.is_some() => break Err(Failure::cancelled()),
            }
        };
        if let (Call::Describe { .. }, Ok(described)) = (&request.call, &result) {
            reads_files = described["protocol"] != 1;
        }
        let mut result = result;
        if let (Call::Plan { .. }, Ok(Value::Object(changes)), false) =
            (&request.call, &mut result, reads_files)
        {
            // A runner of version 1 has no use for details, and reads no long result.
            changes.remove("details");
        }
        let work_dir = context_of(&request.call).map(|context| context.work_dir.as_path());
        report::answer(request.id, result, work_dir.filter(|_| reads_files))?;
        if exit_at.is_some() {
            break;
        }
    }
    Ok(())
}

fn context_of(call: &Call) -> Option<&CallContext> {
    match call {
        Call::Health(context)
        | Call::Preflight(context)
        | Call::Build(context)
        | Call::State(context)
        | Call::Outputs(context)
        | Call::Plan { context, .. }
        | Call::Apply { context, .. }
        | Call::Destroy { context, .. } => Some(context),
        Call::Describe { .. } | Call::Cancel { .. } | Call::Unknown => None,
    }
}

fn parse(line: &str) -> Outcome<Request> {
    serde_json::from_str(line).map_err(|e| Failure::refused(format!("invalid call: {e}")))
}

/// Describes a plugin of this name and version, in the highest common version of the protocol.
pub fn describe((name, version): (&str, &str), protocol: u32, protocols: &[u32]) -> Outcome<Value> {
    let common = schemas::plugin::highest_common(protocol, protocols, &PROTOCOLS);
    let protocol = common.ok_or_else(|| {
        Failure::refused(format!(
            "the runner offers protocol {protocol}, and the plugin supports {PROTOCOLS:?}; install \
             a matching version of the plugin"
        ))
    })?;
    let (name, version) = (name.to_owned(), version.to_owned());
    let kinds = ["build", "plan", "apply"].map(str::to_owned).to_vec();
    Ok(json!(Described { protocol, name, version, kinds }))
}

/// Error of a call that the plugin does not implement.
pub fn unsupported() -> Failure {
    let message = "the plugin does not implement this call".into();
    Failure { code: ErrorCode::Unsupported, message }
}
