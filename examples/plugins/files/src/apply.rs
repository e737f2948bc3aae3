//! Applies a plan file exactly, one file at a time. The state records each file before the next one
//! begins.

use std::{
    env, fs,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use crate::{
    plan::{Action, Effect, Plan},
    protocol::{self, ErrorContext, Parameters, Refusal, StateId},
    state,
};

pub fn apply(
    parameters: &Parameters,
    plan_file: &Path,
    expected: &StateId,
    cancelled: &AtomicBool,
) -> Result<(), Refusal> {
    fs::create_dir_all(&parameters.state_dir).context("create the state directory")?;
    let lock =
        File::create(parameters.state_dir.join("files.lock")).context("create the lock file")?;
    if lock.try_lock().is_err() {
        return Err(Refusal::Refused(
            "cannot apply: another apply holds the lock; try again when it ends".into(),
        ));
    }
    let plan: Plan = serde_json::from_slice(&fs::read(plan_file).context("read the plan file")?)
        .map_err(|_| {
            Refusal::Refused("cannot apply: the plan file is corrupt; plan again".into())
        })?;
    let mut state = state::load(parameters)?;
    if plan.state != *state.id() || plan.state != *expected {
        return Err(Refusal::Stale(
            "cannot apply: the files changed after the plan was made; plan again".into(),
        ));
    }
    // Save a new serial before the first effect, so that this plan is never applied a second time.
    state.begin();
    state.save(parameters)?;
    for effect in &plan.effects {
        if cancelled.load(Ordering::SeqCst) {
            return Err(Refusal::Cancelled);
        }
        let target = state::root(parameters).join(&effect.path);
        match effect.action {
            Action::Create | Action::Update => {
                let content = effect.content()?;
                let write = format!("write {}", effect.path);
                state::replace(&target, &content).context(&write)?;
                fs::set_permissions(&target, fs::Permissions::from_mode(0o644)).context(&write)?;
                state.files.insert(effect.path.clone(), state::digest(&content));
            }
            Action::Delete => {
                match fs::remove_file(&target) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    removed => removed.context(&format!("delete {}", effect.path))?,
                }
                state.files.remove(&effect.path);
            }
        }
        state.save(parameters)?;
        record(parameters, effect).context("write the ledger")?;
        protocol::log(format!("{} {}", verb(effect.action), target.display()))?;
        pause(cancelled);
    }
    Ok(())
}

fn verb(action: Action) -> &'static str {
    match action {
        Action::Create => "created",
        Action::Update => "updated",
        Action::Delete => "deleted",
    }
}

/// Appends a line for each real effect, with its execution, to the file that `STEAD_LEDGER` names.
/// Tests of a runner count these lines.
fn record(parameters: &Parameters, effect: &Effect) -> io::Result<()> {
    let Some(ledger) = env::var_os("STEAD_LEDGER") else { return Ok(()) };
    let execution = env::var("STEAD_EXECUTION").unwrap_or_default();
    let line = format!("{}/{} {execution}\n", parameters.component, effect.path);
    OpenOptions::new().append(true).create(true).open(ledger)?.write_all(line.as_bytes())
}

/// Pauses for `STEAD_FILES_PAUSE_MS`, so that a test can watch the work or stop it in the middle.
fn pause(cancelled: &AtomicBool) {
    let text = env::var("STEAD_FILES_PAUSE_MS").unwrap_or_default();
    let until = Instant::now() + Duration::from_millis(text.parse().unwrap_or(0));
    while Instant::now() < until && !cancelled.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(5));
    }
}
