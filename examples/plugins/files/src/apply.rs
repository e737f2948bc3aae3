//! Exactly what the plan file says, one file at a time, each in the state before the next begins.

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
    protocol::{self, Given, Mark, On, Refusal},
    state,
};

pub fn apply(
    given: &Given,
    plan_file: &Path,
    expected: &Mark,
    cancelled: &AtomicBool,
) -> Result<(), Refusal> {
    fs::create_dir_all(&given.state_dir).on("the state directory")?;
    let lock = File::create(given.state_dir.join("files.lock")).on("the lock")?;
    if lock.try_lock().is_err() {
        return Err(Refusal::Refused("another apply holds the lock".into()));
    }
    let plan: Plan = serde_json::from_slice(&fs::read(plan_file).on("the plan file")?)
        .map_err(|_| Refusal::Refused("the plan file is damaged".into()))?;
    let mut state = state::load(given)?;
    if plan.state != *state.mark() || plan.state != *expected {
        return Err(Refusal::Stale("the files were changed since the plan was made".into()));
    }
    // Before the first effect: whatever happens now, this plan is not applied a second time.
    state.begin();
    state.save(given)?;
    for effect in &plan.effects {
        if cancelled.load(Ordering::SeqCst) {
            return Err(Refusal::Cancelled);
        }
        let target = state::root(given).join(&effect.path);
        match effect.action {
            Action::Create | Action::Update => {
                let content = effect.content()?;
                state::replace(&target, &content).on(&effect.path)?;
                fs::set_permissions(&target, fs::Permissions::from_mode(0o644)).on(&effect.path)?;
                state.files.insert(effect.path.clone(), state::digest(&content));
            }
            Action::Delete => {
                match fs::remove_file(&target) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    removed => removed.on(&effect.path)?,
                }
                state.files.remove(&effect.path);
            }
        }
        state.save(given)?;
        note(given, effect).on("the ledger")?;
        protocol::log(format!("{} {}", word(effect.action), target.display()))?;
        pause(cancelled);
    }
    Ok(())
}

fn word(action: Action) -> &'static str {
    match action {
        Action::Create => "created",
        Action::Update => "updated",
        Action::Delete => "deleted",
    }
}

/// `STEAD_LEDGER` names a file that gets one line for each real effect: what, and by which execution.
/// Whoever tests a runner counts them.
fn note(given: &Given, effect: &Effect) -> io::Result<()> {
    let Some(ledger) = env::var_os("STEAD_LEDGER") else { return Ok(()) };
    let execution = env::var("STEAD_EXECUTION").unwrap_or_default();
    let line = format!("{}/{} {execution}\n", given.component, effect.path);
    OpenOptions::new().append(true).create(true).open(ledger)?.write_all(line.as_bytes())
}

/// `STEAD_FILES_PAUSE_MS` makes the work slow enough to be watched, or to be stopped in the middle.
fn pause(cancelled: &AtomicBool) {
    let text = env::var("STEAD_FILES_PAUSE_MS").unwrap_or_default();
    let until = Instant::now() + Duration::from_millis(text.parse().unwrap_or(0));
    while Instant::now() < until && !cancelled.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(5));
    }
}
