//! `stead-plugin-files`: a component type in a few hundred lines. A component is a set of files in
//! a directory of the account. A deploy makes the directory contain exactly those files.
//!
//! The example has only the parts of a custom plugin. `protocol.rs` implements the protocol of
//! `docs/plugins.md`, and `state.rs` a state with lineage and serial. `plan.rs` makes a complete
//! plan, and `apply.rs` executes exactly that plan.
//!
//! The desired files are those of the component's source, without those that `leave_out` names, and
//! its `vars` as path and content. They go to `$STEAD_FILES_ROOT/<component>`, or into the state
//! directory if the customer names no root.

mod apply;
mod plan;
mod protocol;
mod state;

use std::{
    io::{self, BufRead},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

use protocol::{Call, Refusal, Request};
use serde_json::{Value, json};

fn main() -> io::Result<()> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let requests = listen(cancelled.clone());
    // The channel closes with standard input, when the runner no longer needs the plugin.
    while let Ok(request) = requests.recv() {
        let (id, call) = match request {
            Ok(Request { id, call }) => (id, call),
            Err(refusal) => {
                protocol::refuse(0, &refusal)?;
                continue;
            }
        };
        // The plugin can write a long value of these calls to a file.
        let work_dir = match &call {
            Call::Plan { parameters, .. } | Call::Outputs(parameters) => {
                Some(parameters.work_dir.clone())
            }
            Call::Describe { .. }
            | Call::Health(_)
            | Call::Preflight(_)
            | Call::Build(_)
            | Call::State(_)
            | Call::Apply { .. }
            | Call::Destroy { .. }
            | Call::Cancel { .. }
            | Call::Unknown => None,
        };
        match respond(call, &cancelled) {
            Ok(value) => protocol::respond(id, &value, work_dir.as_deref())?,
            Err(refusal) => protocol::refuse(id, &refusal)?,
        }
    }
    Ok(())
}

fn respond(call: Call, cancelled: &AtomicBool) -> Result<Value, Refusal> {
    match call {
        Call::Describe { protocol, protocols } => Ok(json!({
            "protocol": protocol::common_version(protocol, &protocols)?,
            "name": "files",
            "version": env!("CARGO_PKG_VERSION"),
            "kinds": ["build", "plan", "apply"],
        })),
        Call::Health(parameters) => {
            plan::desired_files(&parameters.with_inputs()?).map(|_| json!({}))
        }
        Call::Preflight(parameters) => Ok(json!({ "checks": [plan::root_check(&parameters)] })),
        Call::Build(parameters) => plan::desired_files(&parameters.with_inputs()?)
            .map(|files| json!({ "files": files.len() })),
        Call::State(parameters) => Ok(json!(state::load(&parameters)?.id())),
        Call::Plan { parameters, plan_file } => plan::make(&parameters.with_inputs()?, &plan_file),
        Call::Apply { parameters, plan_file, state }
        | Call::Destroy { parameters, plan_file, state } => {
            apply::apply(&parameters, &plan_file, &state, cancelled).map(|()| json!({}))
        }
        Call::Outputs(parameters) => {
            Ok(json!({ "outputs": state::load(&parameters)?.outputs(&parameters) }))
        }
        // The reader thread has already handled the cancel.
        Call::Cancel { .. } => Ok(json!({})),
        Call::Unknown => Err(Refusal::Unsupported),
    }
}

/// Receives requests in order. A cancel takes effect while another request is being handled.
fn listen(cancelled: Arc<AtomicBool>) -> mpsc::Receiver<Result<Request, Refusal>> {
    let (sender, receiver) = mpsc::channel();
    #[expect(clippy::disallowed_methods, reason = "the receiver notices the end of the thread")]
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let request = serde_json::from_str::<Request>(&line)
                .map_err(|e| Refusal::Refused(format!("invalid call: {e}")));
            if let Ok(Request { call: Call::Cancel { .. }, .. }) = &request {
                cancelled.store(true, Ordering::SeqCst);
            }
            if sender.send(request).is_err() {
                break;
            }
        }
    });
    receiver
}
