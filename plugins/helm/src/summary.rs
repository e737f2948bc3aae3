//! Summary of a plan for its approver: names of objects and fields. Only the details have values.

use std::fmt::Display;

use schemas::plugin::{Action, AttributeDetails, Changes, ResourceChange, ResourceDetails};
use stead_plugin_kubernetes::{
    decide::Change, failure::Outcome, plan_file::PlannedRemoval, report,
};

use crate::{
    current::{Current, Details},
    hooks::{self, Effect},
    objects,
    plan::Planned,
    release::Release,
    render::Rendered,
};

/// Maximum number of attributes of one object in a summary.
const MAX_ATTRIBUTES: usize = 50;

/// Adds a change of one object. `fields` become its details.
pub fn add(
    changes: &mut Changes,
    (action, address): (Action, &impl Display),
    mut attributes: Vec<String>,
    fields: Vec<AttributeDetails>,
) {
    match action {
        Action::Create => changes.add += 1,
        Action::Update | Action::Adopt => changes.change += 1,
        Action::Delete => changes.destroy += 1,
        Action::Replace => {
            changes.add += 1;
            changes.destroy += 1;
        }
        Action::Forget => {}
    }
    let more = attributes.len().saturating_sub(MAX_ATTRIBUTES);
    if more > 0 {
        attributes.truncate(MAX_ATTRIBUTES);
        attributes.push(format!("and {more} more"));
    }
    let address = address.to_string();
    changes.details.get_or_insert_default().resources.push(ResourceDetails {
        address: address.clone(),
        action,
        attributes: fields,
        omitted: 0,
    });
    changes.resources.push(ResourceChange { address, action, attributes });
}

/// Adds the objects that change. The log names fields that change at every render.
pub fn add_objects(changes: &mut Changes, planned: &[Planned]) {
    for Planned { object, attributes, fields } in planned {
        let reference = &object.reference;
        let action = match object.change {
            Change::None => {
                if !attributes.is_empty() {
                    let fields = attributes.join(", ");
                    report::log(format!("{reference} does not count as a change: {fields}"));
                }
                continue;
            }
            Change::Create => Action::Create,
            Change::Update => Action::Update,
            Change::Adopt => Action::Adopt,
            Change::Replace => Action::Replace,
        };
        add(changes, (action, reference), attributes.clone(), fields.clone());
    }
}

/// Adds the objects that the component gives up, and logs the reasons why some stay.
pub fn add_removals(changes: &mut Changes, removals: &[PlannedRemoval]) {
    for PlannedRemoval { reference, uid, stays, .. } in removals {
        if uid.is_some() {
            add(changes, (Action::Delete, reference), vec![], vec![]);
        }
        if let Some(reason) = stays {
            report::log(format!("{reference} stays in the cluster: {reason}"));
            add(changes, (Action::Forget, reference), vec![format!("stays: {reason}")], vec![]);
        }
    }
}

/// Adds a hook that the operation runs.
pub fn add_hook(changes: &mut Changes, planned: hooks::Planned) {
    let hooks::Planned { run, effect, fields, .. } = planned;
    let attributes = vec![
        format!("hook: {}", run.event),
        format!("weight: {}", run.weight),
        format!("deleted: {}", run.policies.join(", ")),
    ];
    let action = match effect {
        Effect::Create => Action::Create,
        Effect::Replace => Action::Replace,
        Effect::Update => Action::Update,
    };
    add(changes, (action, &run.reference), attributes, fields);
}

/// Returns the reason why the release itself changes.
pub fn release_change(
    current: &Current,
    rendered: &Rendered,
    details: &Details,
    chart: &str,
) -> Outcome<Vec<String>> {
    let mut reasons: Vec<String> = current.defect().into_iter().collect();
    for record in &current.dropped {
        let status = record.status.name();
        reasons.push(format!("removes the record of revision {} ({status})", record.version));
    }
    let Some(before) = &current.release else { return Ok(reasons) };
    if details.release.is_none() {
        reasons.push("adopts the existing release".into());
    }
    if !details.chart.is_empty() && details.chart != chart {
        reasons.push("chart".into());
    }
    let is_empty = |value: &serde_json::Value| {
        value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty)
    };
    let (old, new) = (&before.config, &rendered.release.config);
    // A simulated rendering does not return the values.
    if old != new && !(is_empty(old) && is_empty(new)) && current.dropped.is_empty() {
        reasons.push("values".into());
    }
    let hooks = (rendered.release.hooks(), rendered.second.hooks());
    if objects::hooks_differ(before.hooks(), hooks)? {
        reasons.push("hooks".into());
    }
    Ok(reasons)
}

/// Name and version of the chart, as in `shop-1.0.0`.
pub fn chart_name(release: &Release) -> String {
    let metadata = release.chart.as_ref().map(|chart| &chart.metadata);
    let text = |key: &str| {
        let value = metadata.and_then(|metadata| metadata.get(key));
        value.and_then(|value| value.as_str()).unwrap_or_default()
    };
    format!("{}-{}", text("name"), text("version"))
}
