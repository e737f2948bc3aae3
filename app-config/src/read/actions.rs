//! `actions/**/*.toml`: scripts with triggers.
use super::{
    content, module::source, names::Kind, reader::Reader, section::Section, spec,
    times::duration_ms,
};
use crate::{
    diagnostic::{Severity, nearest},
    model::{Action, ActionStep, Trigger, TriggerKind, bounded_retries},
    tree::sha256,
};

const MAX_TIMEOUT_MS: u64 = 60 * 60 * 1000;

pub fn read(reader: &Reader<'_>) -> Vec<Action> {
    let documents = reader.documents("actions");
    let mut actions: Vec<Action> =
        documents.iter().map(|document| action(reader.section(document))).collect();
    actions.sort_by(|a, b| (&a.name, &a.file).cmp(&(&b.name, &b.file)));
    actions
}

fn action(section: Section<'_>) -> Action {
    let name = section.declared(Kind::Action);
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if !name.chars().all(is_allowed) || name.len() > 128 {
        let message = format!("{name:?} is not a valid name for an action");
        section.error(
            "name",
            "bad_name",
            message,
            "use up to 128 letters, digits, `-`, `_` and `.`",
        );
    }
    let (texts, files) = content::every_text(&section);
    let settings = section.json();
    let content = serde_json::json!({"files": files, "settings": settings});
    section.mentioned("role", Kind::Role, Severity::Warning);
    section.mentioned("break_glass_role", Kind::Role, Severity::Warning);
    let (role, break_glass) = (section.text("role"), section.text("break_glass_role"));
    let steps = section.steps();
    let action = Action {
        at: section.place(),
        name,
        file: section.file().to_string(),
        timeout_ms: timeout(&section),
        triggers: section.sections("triggers").into_iter().filter_map(trigger).collect(),
        uses_cluster: uses_cluster(&section, &steps),
        steps: steps.into_iter().map(step).collect(),
        dependencies: section.mentions("dependencies", Kind::Component, Severity::Error),
        role: role.or(break_glass),
        kubernetes_context: spec::context(&section),
        max_auto_retries: bounded_retries(spec::retries(&section)),
        settings,
        texts,
        digest: Some(sha256(content.to_string().as_bytes())),
    };
    if action.steps.is_empty() {
        let message = "this action has no steps".to_string();
        section.error("steps", "no_steps", message, "add a [[steps]] table");
    }
    section.ignore(&["labels", "label", "description", "inputs", "display_name"]);
    section.finish();
    action
}

/// Returns true if the action gets access to the cluster. Its steps run in one job, so they have the
/// same access.
fn uses_cluster(section: &Section<'_>, steps: &[Section<'_>]) -> bool {
    const KEY: &str = "enable_kube_config";
    let of_action = section.flag(KEY).unwrap_or(true);
    let of_steps: Vec<Option<bool>> = steps.iter().map(|step| step.flag(KEY)).collect();
    let differs = |flag: &Option<bool>| *flag == Some(!of_action);
    let Some(first) = of_steps.iter().position(differs) else { return of_action };
    if !of_steps.iter().all(differs)
        && let Some(step) = steps.get(first)
    {
        let message = "the steps of an action have the same access to the cluster, and this one \
                       differs"
            .to_string();
        let remedy = "set enable_kube_config for the action, or move the step to its own action";
        step.error(KEY, "mixed_cluster_access", message, remedy);
    }
    !of_action
}

fn timeout(section: &Section<'_>) -> u64 {
    let Some(text) = section.string("timeout") else {
        return 5 * 60 * 1000;
    };
    match duration_ms(&text) {
        Some(ms) if ms > 0 && ms <= MAX_TIMEOUT_MS => ms,
        Some(_) | None => {
            let message =
                format!("invalid timeout {text:?}: must be a duration above 0 and up to 60m");
            section.error("timeout", "bad_timeout", message, "write it as 30s, 5m or 1h");
            MAX_TIMEOUT_MS
        }
    }
}

fn trigger(section: Section<'_>) -> Option<Trigger> {
    let word = section.required("type");
    let cron_schedule = section.schedule("cron_schedule");
    let of = |key| section.mentioned(key, Kind::Component, Severity::Error);
    let (component, older) = (of("component_name"), of("component"));
    let component = component.or(older);
    let index = section.integer("index");
    let origin = section.origin("type");
    let Some(kind) = TriggerKind::parse(&word) else {
        if !word.is_empty() {
            let message = format!("unknown trigger `{word}`: it never fires");
            let remedy = match nearest(&word, TriggerKind::ALL.iter().map(|kind| kind.name())) {
                Some(suggestion) => format!("did you mean `{suggestion}`?"),
                None => "use a trigger of the format, such as `post-provision`".to_string(),
            };
            section.warning("type", "unknown_trigger", message, &remedy);
        }
        section.finish();
        return None;
    };
    if kind == TriggerKind::Cron && cron_schedule.is_none() {
        let message = "this cron trigger never fires: it has no schedule".to_string();
        section.warning("type", "no_schedule", message, "add cron_schedule = \"0 3 * * *\"");
    }
    if kind != TriggerKind::Cron && cron_schedule.is_some() {
        let message = format!("a trigger of type `{word}` takes no schedule");
        let remedy = "remove cron_schedule, or use the type `cron`";
        section.warning("cron_schedule", "never_fires", message, remedy);
    }
    if !kind.is_about_one_component()
        && let Some(key) =
            ["component_name", "component"].into_iter().find(|key| section.table.contains_key(*key))
    {
        let message = format!("a trigger of type `{word}` takes no component");
        let remedy = "remove the component, or use a trigger such as post-deploy-component";
        section.warning(key, "no_effect", message, remedy);
    }
    section.finish();
    Some(Trigger { kind, component, cron_schedule, index: index.unwrap_or_default(), origin })
}

fn step(section: Section<'_>) -> ActionStep {
    let step = ActionStep {
        at: section.place(),
        name: section.required("name"),
        command: section.text("command"),
        inline_contents: section.content("inline_contents"),
        env_vars: section.variables("env_vars"),
        source: source(&section),
    };
    let written = section.text("inline_contents").is_some();
    if step.command.is_none() && !written {
        let message = format!("the step `{}` has no script", step.name);
        section.error("name", "no_script", message, "add `command` or `inline_contents`");
    }
    if step.command.is_some() && written {
        let message = format!("the step `{}` has both `command` and `inline_contents`", step.name);
        section.error("command", "two_scripts", message, "keep one of them");
    }
    section.ignore(&["labels", "description"]);
    section.finish();
    step
}
