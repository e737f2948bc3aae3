//! What a run that has ended left undone: what a retry is about, and nothing else.
use std::collections::BTreeSet;

use super::{Operation, Run, StepState, Target};

/// What is to be done again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Undone {
    /// Whether the sandbox is among it.
    pub sandbox: bool,
    /// Components that were to be brought, by name.
    pub bring: BTreeSet<String>,
    /// Components that were to be destroyed, by name.
    pub destroy: BTreeSet<String>,
    /// Scripts, in the order in which they were to run.
    pub actions: Vec<String>,
}

impl Undone {
    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        *self == Undone::default()
    }
}

impl Run {
    /// Everything that the run was to do and did not.
    pub fn undone(&self) -> Undone {
        let mut undone = Undone::default();
        let is_done = |state: &StepState| matches!(state, StepState::Succeeded { .. });
        for at in self.steps.iter().filter(|at| !is_done(&at.state)) {
            match &at.spec.target {
                Target::Sandbox { .. } => undone.sandbox = true,
                Target::Component { name, .. } => {
                    let names = match at.spec.operation {
                        Operation::Destroy => &mut undone.destroy,
                        Operation::Apply | Operation::Execute => &mut undone.bring,
                    };
                    names.insert(name.clone());
                }
                Target::Action { name } => undone.actions.push(name.clone()),
            }
        }
        undone
    }
}
