//! Unfinished work of a finished run. A retry of the run plans this work again.
use std::collections::BTreeSet;

use super::{Operation, Run, StepState, Target};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemainingWork {
    /// True if the step of the sandbox did not succeed.
    pub sandbox: bool,
    /// Names of the components to deploy.
    pub deploy: BTreeSet<String>,
    /// Names of the components to destroy.
    pub destroy: BTreeSet<String>,
    /// Names of the actions to execute, in their planned order.
    pub actions: Vec<String>,
}

impl RemainingWork {
    pub fn is_empty(&self) -> bool {
        *self == RemainingWork::default()
    }
}

impl Run {
    /// Returns the work of all steps that did not succeed.
    pub fn remaining_work(&self) -> RemainingWork {
        let mut remaining = RemainingWork::default();
        let has_succeeded = |state: &StepState| matches!(state, StepState::Succeeded { .. });
        for at in self.steps.iter().filter(|at| !has_succeeded(&at.state)) {
            match &at.spec.target {
                Target::Sandbox { .. } => remaining.sandbox = true,
                Target::Component { name, .. } => {
                    let names = match at.spec.operation {
                        Operation::Destroy => &mut remaining.destroy,
                        Operation::Apply | Operation::Execute | Operation::Check => {
                            &mut remaining.deploy
                        }
                    };
                    names.insert(name.clone());
                }
                Target::Action { name } => remaining.actions.push(name.clone()),
            }
        }
        remaining
    }
}
