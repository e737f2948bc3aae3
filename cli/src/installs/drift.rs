//! `stead installs drift`: checks an install for drift, and shows the result of each part.
use clap::Args;
use schemas::control::runs::{Plan, RequestRun, RequestedKind, Run, Step, StepPlanDetails};
use serde::Serialize;
use serde_json::Value;

use crate::{
    failure::Failure,
    render::{Screen, Tone},
    runs::{
        output,
        plans::{self, DetailsMode, plan_text},
        until_quietly_finished,
    },
    settings::CommandContext,
};

#[derive(Debug, Args)]
pub(crate) struct Drift {
    /// Name or id of the install
    install: String,
    /// Reason, recorded in the log
    #[arg(long)]
    reason: Option<String>,
    /// Amount of detail [default: values, with long ones folded]
    #[arg(long, value_enum)]
    details: Option<DetailsMode>,
}

/// Result of the check of one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DriftResult {
    NoDrift,
    Drift,
    NotChecked,
}

/// Sandbox or component with the result of its check.
#[derive(Debug, Serialize)]
pub(crate) struct Part {
    name: String,
    result: DriftResult,
    /// Reason why the part could not be checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<Plan>,
    /// Names of the changes. Present for drift.
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<Value>,
    /// Values of the changes. Present for drift, if the user may read them.
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<StepPlanDetails>,
}

/// Result of all checks.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    run: domain::ids::RunId,
    install: String,
    result: DriftResult,
    parts: Vec<Part>,
}

/// Checks an install and prints the result. Ctrl-C ends only the command.
pub(crate) async fn check(context: &CommandContext, args: Drift) -> Result<(), Failure> {
    let request = RequestRun {
        kind: RequestedKind::Drift,
        components: vec![],
        action: None,
        reason: args.reason,
        plan_all: false,
    };
    let requested = context.client.request_run(&args.install, &request).await?;
    let run = requested.run.ok_or_else(|| {
        Failure::Outcome("cannot check for drift: the server started no run".into())
    })?;
    context.screen.remark(&format!("Checking {} with {run}.", args.install));
    let run = until_quietly_finished(context, run).await?;
    let report = report(context, &run, args.details).await?;
    context.screen.print_one(&report, |screen| text(&report, args.details, screen))?;
    report.outcome()
}

/// Returns the result of a step. A finished check with changes in its plan found drift.
pub(crate) fn result(step: &Step) -> DriftResult {
    match (step.state.as_str(), &step.plan) {
        ("succeeded", Some(plan)) if plan.noop => DriftResult::NoDrift,
        ("succeeded", Some(_)) => DriftResult::Drift,
        _ => DriftResult::NotChecked,
    }
}

async fn report(
    context: &CommandContext,
    run: &Run,
    mode: Option<DetailsMode>,
) -> Result<Report, Failure> {
    let mut parts = vec![];
    for step in &run.dag {
        let result = result(step);
        let (mut summary, mut details) = (None, None);
        if result == DriftResult::Drift {
            summary = Some(context.client.plan(run.run.id, step.id).await?);
            details = plans::details(context, (run.run.id, step), mode).await?;
        }
        let reason = match result {
            DriftResult::NoDrift | DriftResult::Drift => None,
            DriftResult::NotChecked => Some(step.reason.clone().unwrap_or(step.state.clone())),
        };
        let (name, plan) = (step.name.clone(), step.plan.clone());
        parts.push(Part { name, result, reason, plan, summary, details });
    }
    Ok(Report::of(run, parts))
}

impl Report {
    pub(crate) fn of(run: &Run, parts: Vec<Part>) -> Report {
        let any = |result| parts.iter().any(|part| part.result == result);
        let result = match (any(DriftResult::Drift), any(DriftResult::NotChecked)) {
            (true, _) => DriftResult::Drift,
            (false, true) => DriftResult::NotChecked,
            (false, false) => DriftResult::NoDrift,
        };
        Report { run: run.run.id, install: run.run.install_name.clone(), result, parts }
    }

    fn names(&self, of: DriftResult) -> String {
        let parts = self.parts.iter().filter(|part| part.result == of);
        parts.map(|part| part.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    fn outcome(&self) -> Result<(), Failure> {
        match self.result {
            DriftResult::NoDrift => Ok(()),
            DriftResult::Drift => Err(Failure::Drift(format!(
                "drift found in {}: {}\n  try: `stead installs deploy {}` plans to undo it",
                self.install,
                self.names(DriftResult::Drift),
                self.install
            ))),
            DriftResult::NotChecked => Err(Failure::Outcome(format!(
                "cannot check {}: {}\n  try: `stead runs show {}`, then `stead installs drift {}` again",
                self.install,
                self.names(DriftResult::NotChecked),
                self.run,
                self.install
            ))),
        }
    }
}

/// Formats the result of each part, with the changes of a part that has drift.
pub(crate) fn text(report: &Report, mode: Option<DetailsMode>, screen: &Screen) -> String {
    let width = report.parts.iter().map(|part| part.name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for part in &report.parts {
        let (tone, result) = match part.result {
            DriftResult::NoDrift => (Tone::Good, "no drift".to_owned()),
            DriftResult::Drift => {
                let counts = part.plan.as_ref().map(output::counts).unwrap_or_default();
                (Tone::Attention, format!("drift: {counts}"))
            }
            DriftResult::NotChecked => {
                let reason = part.reason.as_deref().unwrap_or_default();
                (Tone::Bad, format!("not checked: {reason}"))
            }
        };
        let result = screen.paint(tone, &result);
        text += &format!("{:width$}  {result}\n", part.name);
    }
    for part in &report.parts {
        if let Some(summary) = &part.summary {
            text += &plan_text(&part.name, summary, part.details.as_ref(), mode, screen);
        }
    }
    text
}

#[cfg(test)]
impl Part {
    /// Returns a part for a golden file.
    pub(crate) fn example(
        step: &Step,
        summary: Option<Value>,
        details: Option<StepPlanDetails>,
    ) -> Part {
        let (name, plan, reason) = (step.name.clone(), step.plan.clone(), step.reason.clone());
        Part { name, result: result(step), reason, plan, summary, details }
    }
}
