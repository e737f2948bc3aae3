//! Text of a plan for a user who decides on it: the names of its changes, or the changed values.
use std::collections::BTreeMap;

use clap::ValueEnum;
use domain::ids::RunId;
use schemas::{
    control::runs::{DetailsState, Step, StepPlanDetails},
    plugin::{
        ResourceDetails,
        details_text::{Fold, LineKind, lines},
    },
};
use serde_json::{Value, json};

use super::output;
use crate::{
    client::ClientError,
    failure::Failure,
    render::{Output, Screen, Tone},
    settings::CommandContext,
};

/// Amount of detail in the text of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DetailsMode {
    /// All values, with the changed lines of long texts
    Full,
    /// Names of resources and attributes only
    Names,
}

/// Returns the text of a step's plan.
pub(crate) async fn text(
    context: &CommandContext,
    (run, step): (RunId, &Step),
    mode: Option<DetailsMode>,
) -> Result<String, Failure> {
    let summary = match context.client.plan(run, step.id).await {
        Ok(summary) => summary,
        Err(ClientError::Problem(problem)) if problem.code == "erased" => {
            return Ok(erased_text(&step.name, &context.screen));
        }
        Err(error) => return Err(error.into()),
    };
    let details = details(context, (run, step), mode).await?;
    Ok(plan_text(&step.name, &summary, details.as_ref(), mode, &context.screen))
}

/// Prints the plans of all steps. JSON output has the details only with `--details=full`.
pub(crate) async fn print(
    context: &CommandContext,
    (run, steps): (RunId, &[Step]),
    mode: Option<DetailsMode>,
) -> Result<(), Failure> {
    for step in steps.iter().filter(|step| step.plan.is_some()) {
        match context.screen.output {
            Output::Table => {
                crate::render::write(&text(context, (run, step), mode).await?)?;
            }
            Output::Json | Output::Ndjson => {
                let summary = context.client.plan(run, step.id).await?;
                context.screen.print_one(&summary, |_| String::new())?;
                if mode == Some(DetailsMode::Full)
                    && let Some(details) = details(context, (run, step), mode).await?
                {
                    context.screen.print_one(&details, |_| String::new())?;
                }
            }
        }
    }
    Ok(())
}

/// Returns the details of a plan. `None` if there are none, the user does not want them, or the role
/// of the user does not allow them.
pub(crate) async fn details(
    context: &CommandContext,
    (run, step): (RunId, &Step),
    mode: Option<DetailsMode>,
) -> Result<Option<StepPlanDetails>, Failure> {
    let has_details = step.plan.as_ref().is_some_and(|plan| plan.has_details);
    if !has_details || mode == Some(DetailsMode::Names) {
        return Ok(None);
    }
    match context.client.plan_details(run, step.id).await {
        Ok(details) => Ok(Some(details)),
        Err(ClientError::Problem(problem)) if problem.status == 403 && mode.is_none() => {
            context.screen.remark(
                "The plan is shown with names only: its details require the role approver or auditor.",
            );
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Formats a plan that was erased with the data of its install.
pub(crate) fn erased_text(name: &str, screen: &Screen) -> String {
    let title = screen.paint(Tone::Strong, &format!("plan of {name}"));
    format!("\n{title}\n  {}\n", screen.paint(Tone::Faint, "the plan was erased"))
}

/// Formats a plan. A resource without details is shown with its name and attributes.
pub(crate) fn plan_text(
    name: &str,
    summary: &Value,
    details: Option<&StepPlanDetails>,
    mode: Option<DetailsMode>,
    screen: &Screen,
) -> String {
    let Some(StepPlanDetails { state, details, .. }) = details else {
        return output::plan(name, summary, screen);
    };
    let Some(details) = details else {
        let mut text = output::plan(name, summary, screen);
        if *state == DetailsState::Erased {
            text += &format!("  {}\n", screen.paint(Tone::Faint, "the details were erased"));
        }
        return text;
    };
    let fold = match mode {
        Some(DetailsMode::Full) => Fold::Nothing,
        Some(DetailsMode::Names) | None => Fold::Long,
    };
    let mut text = format!("\n{}\n", screen.paint(Tone::Strong, &format!("plan of {name}")));
    for line in lines(details, fold) {
        let tone = match line.kind {
            LineKind::Added => Tone::Good,
            LineKind::Removed => Tone::Bad,
            LineKind::Changed => Tone::Attention,
            LineKind::Remark => Tone::Faint,
        };
        text += &format!("  {}\n", screen.paint(tone, &line.text));
    }
    for one in without_details(summary, "resources", &details.resources) {
        text += &output::changed(one, screen);
    }
    for one in without_details(summary, "outputs", &details.outputs) {
        text += &output::changed_output(one, screen);
    }
    if details.resources.is_empty() && details.outputs.is_empty() && details.omitted == 0 {
        text += "  no changes\n";
    }
    text
}

/// Returns the changes of a summary that have no details. A plan can have several changes of one
/// address: Terraform updates a resource and deletes its deposed object.
fn without_details<'s>(
    summary: &'s Value,
    key: &str,
    details: &[ResourceDetails],
) -> Vec<&'s Value> {
    let mut shown: BTreeMap<(String, String), usize> = BTreeMap::new();
    for one in details {
        *shown.entry((one.address.clone(), json!(one.action).to_string())).or_default() += 1;
    }
    let listed = summary.get(key).and_then(Value::as_array).into_iter().flatten();
    let has_none = |one: &&Value| {
        let address = ["address", "name"].into_iter().find_map(|key| one.get(key)?.as_str());
        let action = one.get("action").map(Value::to_string).unwrap_or_default();
        match address.and_then(|address| shown.get_mut(&(address.to_owned(), action))) {
            Some(left) if *left > 0 => {
                *left -= 1;
                false
            }
            Some(_) | None => true,
        }
    };
    listed.filter(has_none).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_without_details_is_shown_beside_another_one_of_its_address() {
        let change = |address: &str, action: &str| json!({"address": address, "action": action});
        let summary = json!({
            "resources": [change("a.web", "update"), change("a.web", "delete"), change("a.web", "delete")],
            "outputs": [{"name": "url", "action": "create"}, {"name": "ip", "action": "delete"}],
        });
        let details = json!({
            "resources": [change("a.web", "update"), change("a.web", "delete")],
            "outputs": [change("url", "create")], "omitted": 2,
        });
        let details: StepPlanDetails = serde_json::from_value(json!({
            "plan": format!("sha256:{:064x}", 1), "state": "available", "details": details,
        }))
        .unwrap();
        let screen = Screen::new(Output::Table, true, true);
        let text = plan_text("network", &summary, Some(&details), None, &screen);
        let lines = |line: &str| text.lines().filter(|shown| shown.trim() == line).count();
        assert_eq!((lines("~ a.web"), lines("- a.web")), (1, 2), "{text}");
        assert_eq!((lines("+ output url"), lines("output - ip")), (1, 1), "{text}");
    }
}
