//! What is kept of runners and jobs while a log is read: little, because it is kept of every job that there ever was.
use std::collections::HashMap;

use serde_json::{Map, Value};

use super::Claimed;
use crate::{Hash, sha256};

/// Texts in 16 bytes, whatever they are: half of their SHA-256. Not of ULIDs alone: whoever invents an event may
/// write anything where an id should be.
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
    /// Hexadecimal. `None`: it has never enrolled, as far as was read.
    pub key: Option<String>,
    /// Where it was. No later key brings it back.
    pub revoked: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Job {
    pub manifest: Option<Hash>,
    /// Whether some runner has it, or had it last.
    pub is_held: bool,
}

#[derive(Debug)]
pub(super) struct Run {
    runner: Id,
    /// Length, digest and what was omitted, as its runner signed them.
    pub log: Option<Id>,
}

/// Of a job with one execution the tables have 100 bytes, and with what they keep free up to 230: 230 MB for a
/// million jobs. A late result may come of each of them at any time, so none of it can be forgotten. What a runner
/// reported is forgotten when its execution is over.
#[derive(Debug, Default)]
pub(super) struct Known {
    runners: HashMap<Id, Runner>,
    jobs: HashMap<Id, Job>,
    runs: HashMap<Id, Run>,
    /// What executions that are not over have reported. `None`: not all of it can be read.
    outputs: HashMap<Id, Option<Map<String, Value>>>,
}

impl Known {
    pub fn runner(&mut self, id: String) -> &mut Runner {
        let runner = Runner { key: None, revoked: None, id };
        self.runners.entry(Id::of(&[&runner.id])).or_insert(runner)
    }

    /// The job, which is known from now on.
    pub fn job(&mut self, job: &str) -> &mut Job {
        self.jobs.entry(Id::of(&[job])).or_default()
    }

    pub fn seen(&self, job: &str) -> Option<&Job> {
        self.jobs.get(&Id::of(&[job]))
    }

    pub fn claimed(&mut self, job: &str, claimed: Claimed) {
        let Claimed { execution, runner } = claimed;
        self.job(job).is_held = true;
        let run = Run { runner: Id::of(&[&runner]), log: None };
        self.runner(runner);
        let id = Id::of(&[job, &execution]);
        self.runs.entry(id).or_insert(run);
        self.outputs.insert(id, Some(Map::new()));
    }

    pub fn run(&mut self, job: &str, execution: &str) -> Option<(&mut Run, &Runner)> {
        let run = self.runs.get_mut(&Id::of(&[job, execution]))?;
        let runner = self.runners.get(&run.runner)?;
        Some((run, runner))
    }

    pub fn reported(&mut self, job: &str, execution: &str, outputs: Map<String, Value>) {
        let Some(all) = self.outputs.get_mut(&Id::of(&[job, execution])) else { return };
        let is_known = |value: &Value| value != "[encrypted]" && value != "[erased]";
        match all {
            Some(all) if outputs.values().all(is_known) => all.extend(outputs),
            Some(_) | None => *all = None,
        }
    }

    /// All that it reported, if that can be read and it was not over.
    pub fn over(&mut self, job: &str, execution: &str) -> Option<Map<String, Value>> {
        self.outputs.remove(&Id::of(&[job, execution])).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_job_that_is_over_no_text_is_kept() {
        let mut known = Known::default();
        for job in ["job_1", "job_2"] {
            let (execution, runner) = ("exe_1".to_owned(), "rnr_1".to_owned());
            known.claimed(job, Claimed { execution, runner });
        }
        known.reported("job_1", "exe_1", Map::from_iter([("a".to_owned(), Value::Null)]));
        assert_eq!(known.over("job_1", "exe_1").map(|all| all.len()), Some(1));
        assert_eq!(known.over("job_1", "exe_1"), None);
        assert_eq!((known.outputs.len(), known.runs.len(), known.runners.len()), (1, 2, 1));
        assert!(size_of::<(Id, Job)>() + size_of::<(Id, Run)>() <= 100);
        assert!(!std::mem::needs_drop::<(Job, Run)>());
    }
}
