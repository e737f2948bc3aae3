//! The reports of runners in the log: what is known of them is put together in order, their signatures are checked
//! beside it, on whichever core has time.
use proof::report::{Fact, Reports, Signature, Tally, Wrong};
use tokio::task::JoinSet;

use super::{Difference, VerifyError};

/// How many signatures are checked in one task.
const BATCH: usize = 256;
/// Largest number of waiting tasks.
const TASKS: usize = 16;
/// How many findings are told of.
const TOLD: usize = 100;

/// What runners reported, and whether they did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reported {
    /// How many, and how many of them nobody signed.
    pub tally: Tally,
    /// Reports that no runner made, or not like this, by position; the first hundred. The log itself is whole all the
    /// same: whoever wrote it wrote them.
    pub wrong: Vec<Difference>,
}

/// Puts it together.
pub(super) struct Gathering {
    reports: Reports,
    wrong: Vec<Wrong>,
    waiting: Vec<Signature>,
    tasks: JoinSet<Vec<Wrong>>,
}

impl Gathering {
    pub fn new(whole: bool) -> Gathering {
        let reports = Reports::new(whole);
        Gathering { reports, wrong: vec![], waiting: vec![], tasks: JoinSet::new() }
    }

    /// The facts of the next part.
    pub async fn take(&mut self, facts: Vec<(u64, Fact)>) -> Result<(), VerifyError> {
        for (position, fact) in facts {
            match self.reports.take(position, fact) {
                Ok(asked) => self.waiting.extend(asked),
                Err(wrong) => self.found(wrong),
            }
            if self.waiting.len() >= BATCH {
                self.check();
            }
            // The reader waits for the checks, so that memory does not hold the signatures of a whole log.
            while self.tasks.len() > TASKS {
                self.checked().await?;
            }
        }
        Ok(())
    }

    /// Waits for one batch. Returns whether there was one.
    async fn checked(&mut self) -> Result<bool, VerifyError> {
        let Some(found) = self.tasks.join_next().await else { return Ok(false) };
        self.wrong.extend(found.map_err(|error| sqlx::Error::Io(error.into()))?);
        self.wrong.sort_unstable();
        self.wrong.truncate(TOLD);
        Ok(true)
    }

    fn check(&mut self) {
        let batch = std::mem::take(&mut self.waiting);
        self.tasks.spawn(async move { Signature::check_all(&batch).take(TOLD).collect() });
    }

    fn found(&mut self, wrong: Wrong) {
        if self.wrong.len() < TOLD {
            self.wrong.push(wrong);
        }
    }

    pub async fn end(mut self) -> Result<Reported, VerifyError> {
        self.check();
        while self.checked().await? {}
        self.wrong.sort_unstable();
        let wrong =
            self.wrong.into_iter().map(|Wrong { position, what }| Difference { position, what });
        Ok(Reported { tally: self.reports.tally(), wrong: wrong.collect() })
    }
}
