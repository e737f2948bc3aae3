//! State of runners and jobs during the verification of a log. The state covers every job of the
//! log, so each entry must be small.
use std::collections::HashMap;

use serde_json::{Map, Value};

use super::Claimed;
use crate::{Hash, sha256};

/// 16-byte key for a list of strings: half of their SHA-256. A ULID cannot serve as the key,
/// because a forged event can contain any string as an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Id([u8; 16]);

impl Id {
    pub fn of(texts: &[&str]) -> Id {
        let mut all = vec![];
        for text in texts {
            all.extend((text.len() as u64).to_be_bytes());
            all.extend(text.as_bytes());
        }
        let mut half = [0; 16];
        half.copy_from_slice(&sha256(&all)[..16]);
        Id(half)
    }
}

#[derive(Debug)]
pub(super) struct Runner {
    pub id: String,
    /// Identity key, hexadecimal. `None` before the enrolment.
    pub key: Option<String>,
    /// Position of the revocation. A later key does not undo the revocation.
    pub revoked: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Job {
    pub manifest: Option<Hash>,
    /// True from the claim of the job until the job is requeued.
    pub is_held: bool,
}

#[derive(Debug)]
pub(super) struct Execution {
    runner: Id,
    /// Length, digest and omitted bytes of the log, as the runner signed them.
    pub log: Option<Id>,
}

/// State during the verification of a log.
///
/// A job with one execution takes at most 100 bytes in the tables, and up to 230 with their spare
/// capacity. A million jobs take up to 230 MB. A late result can arrive for any job at any time, so
/// no job can be removed. The outputs of an execution are removed when the execution is over.
#[derive(Debug, Default)]
pub(super) struct ReportState {
    runners: HashMap<Id, Runner>,
    jobs: HashMap<Id, Job>,
    executions: HashMap<Id, Execution>,
    /// Reported outputs of executions that are not over. `None`: some outputs are encrypted or
    /// erased.
    outputs: HashMap<Id, Option<Map<String, Value>>>,
}

impl ReportState {
    pub fn runner(&mut self, id: String) -> &mut Runner {
        let runner = Runner { key: None, revoked: None, id };
        self.runners.entry(Id::of(&[&runner.id])).or_insert(runner)
    }

    /// Returns the job, and adds it if it is new.
    pub fn job(&mut self, job: &str) -> &mut Job {
        self.jobs.entry(Id::of(&[job])).or_default()
    }

    pub fn find_job(&self, job: &str) -> Option<&Job> {
        self.jobs.get(&Id::of(&[job]))
    }

    pub fn claimed(&mut self, job: &str, claimed: Claimed) {
        let Claimed { execution, runner } = claimed;
        self.job(job).is_held = true;
        let added = Execution { runner: Id::of(&[&runner]), log: None };
        self.runner(runner);
        let id = Id::of(&[job, &execution]);
        self.executions.entry(id).or_insert(added);
        self.outputs.insert(id, Some(Map::new()));
    }

    pub fn execution(&mut self, job: &str, execution: &str) -> Option<(&mut Execution, &Runner)> {
        let found = self.executions.get_mut(&Id::of(&[job, execution]))?;
        let runner = self.runners.get(&found.runner)?;
        Some((found, runner))
    }

    pub fn add_outputs(&mut self, job: &str, execution: &str, outputs: Map<String, Value>) {
        let Some(all) = self.outputs.get_mut(&Id::of(&[job, execution])) else { return };
        let is_known = |value: &Value| value != "[encrypted]" && value != "[erased]";
        match all {
            Some(all) if outputs.values().all(is_known) => all.extend(outputs),
            Some(_) | None => *all = None,
        }
    }

    /// Ends the execution and returns its reported outputs. Returns `None` if some outputs are
    /// encrypted or erased, or if the execution was already over.
    pub fn end_execution(&mut self, job: &str, execution: &str) -> Option<Map<String, Value>> {
        self.outputs.remove(&Id::of(&[job, execution])).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_finished_execution_contains_no_text() {
        let mut state = ReportState::default();
        for job in ["job_1", "job_2"] {
            let (execution, runner) = ("exe_1".to_owned(), "rnr_1".to_owned());
            state.claimed(job, Claimed { execution, runner });
        }
        state.add_outputs("job_1", "exe_1", Map::from_iter([("a".to_owned(), Value::Null)]));
        assert_eq!(state.end_execution("job_1", "exe_1").map(|all| all.len()), Some(1));
        assert_eq!(state.end_execution("job_1", "exe_1"), None);
        assert_eq!((state.outputs.len(), state.executions.len(), state.runners.len()), (1, 2, 1));
        assert!(size_of::<(Id, Job)>() + size_of::<(Id, Execution)>() <= 100);
        assert!(!std::mem::needs_drop::<(Job, Execution)>());
    }
}
