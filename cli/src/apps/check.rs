//! `stead apps validate` and `stead apps inspect`: findings and contents of an app directory,
//! without a server.
use std::collections::BTreeMap;

use app_config::{
    Diagnostic, Reading, Severity, Tree,
    diagnostic::{format_findings, sarif},
    inspect, survey,
};
use serde_json::{Value, json};

use super::{Source, directory, pack, plugin, remote};
use crate::{
    failure::Failure,
    render::{Screen, Tone, write},
    settings::{Format, Settings},
};

/// Readable parts of an app directory, and all findings.
struct Checked {
    name: String,
    tree: Tree,
    reading: Reading,
}

pub(crate) async fn validate(
    source: &Source,
    strict: bool,
    settings: &Settings,
) -> Result<(), Failure> {
    let checked = check(source).await?;
    let Checked { name, tree, reading } = &checked;
    let findings = &reading.diagnostics;
    let errors = findings.iter().filter(|finding| finding.is_error()).count();
    let screen = settings.screen();
    if settings.output == Format::Sarif {
        let document = sarif(
            findings,
            env!("CARGO_PKG_VERSION"),
            &directory::path_in_repository(&source.dir)?,
        );
        write(&format!("{document:#}\n"))?;
    } else {
        screen.print_one(&validation_result(name, findings, errors, strict), |screen| {
            let text = format_findings(findings, tree, screen.has_color(), screen.has_unicode());
            text + &result_line(name, reading, (errors, strict), screen)
        })?;
    }
    let warnings = findings.len() - errors;
    match (errors, warnings) {
        (0, 0) => Ok(()),
        (0, _) if !strict => Ok(()),
        // The findings are already printed.
        (_, _) => Err(Failure::AlreadyPrinted),
    }
}

pub(crate) async fn inspected(source: &Source, settings: &Settings) -> Result<(), Failure> {
    let Checked { name, tree, reading } = check(source).await?;
    let config = inspect(&name, &tree, &reading);
    settings.screen().print_one(&config, |screen| summary(&config, &reading, screen))
}

async fn check(source: &Source) -> Result<Checked, Failure> {
    let name = pack::app_name(source)?;
    let (mut tree, mut findings) = directory::survey(&source.dir)?;
    let mut pins = Vec::new();
    for (plugin_name, path) in &source.plugins {
        pins.push(plugin::pin(plugin_name, path).await?);
    }
    let mut reading = survey(&tree, &pins);
    if source.allow_remote && remote::fetch_all(&reading.remotes, &mut tree).await? {
        reading = survey(&tree, &pins);
    }
    findings.extend(invalid_name(&name));
    if let Some(unused) = pack::unused_source(source, &reading.config) {
        return Err(Failure::Usage(unused));
    }
    findings.extend(missing_modules(source, &reading));
    findings.append(&mut reading.diagnostics);
    findings.sort_by_key(|finding| finding.severity);
    reading.diagnostics = findings;
    Ok(Checked { name, tree, reading })
}

/// Finding for a name that the server would reject.
fn invalid_name(name: &str) -> Option<Diagnostic> {
    if domain::name::is_valid(name) {
        return None;
    }
    let message = format!("{name:?} is not a valid app name");
    let remedy = "set --name NAME: 1 to 63 lower-case letters, digits, `-` and `_`, with a letter or digit at both ends";
    Some(Diagnostic::error("bad_name", message, remedy))
}

/// Findings for modules in the repositories of `--source`: missing directories, and errors in the
/// modules. The survey of the app directory checks its own modules. For repositories without
/// `--source`, this function checks only the address.
fn missing_modules(source: &Source, reading: &Reading) -> Vec<Diagnostic> {
    let config = &reading.config;
    let (mut findings, mut sources) = (Vec::new(), BTreeMap::new());
    for (name, module) in config.sources() {
        let in_other_repository =
            module.repo == "." || pack::repository_path(source, module).is_none();
        if !in_other_repository && let Ok(tree) = pack::module_tree(source, name, module) {
            sources.insert(name.to_owned(), tree);
        }
        if in_other_repository && module.repo != "." {
            findings.extend(config.invalid_repository(name));
        }
        if in_other_repository || pack::is_here(source, module) {
            continue;
        }
        if let Some(scripts) = config.scripts.iter().find(|scripts| scripts.name == name) {
            findings.push(config.missing_scripts(scripts));
            continue;
        }
        let file = config.component(name).map_or("sandbox.toml", |component| &component.file);
        let message =
            format!("the module of `{name}` ({} in {}) is missing", module.directory, module.repo);
        let remedy = "set `directory` to an existing directory, or pass the local path of the repository: --source OWNER/NAME=PATH";
        let severity = match config.lacks_plugin(name) {
            Some(_) => Severity::Warning,
            None => Severity::Error,
        };
        let finding = Diagnostic::new(severity, "missing_module", message, remedy);
        findings.push(finding.at(file, Default::default()));
    }
    findings.extend(pack::check_modules(config, &sources));
    findings
}

fn validation_result(name: &str, findings: &[Diagnostic], errors: usize, strict: bool) -> Value {
    json!({
        "name": name,
        "valid": if strict { findings.is_empty() } else { errors == 0 },
        "errors": errors,
        "warnings": findings.len() - errors,
        "diagnostics": findings,
    })
}

fn result_line(
    name: &str,
    reading: &Reading,
    (errors, strict): (usize, bool),
    screen: &Screen,
) -> String {
    let warnings = reading.diagnostics.len() - errors;
    let counted = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    if errors > 0 {
        let counts = format!("{}, {}", counted(errors, "error"), counted(warnings, "warning"));
        return format!("{name} cannot be published: {}.\n", screen.paint(Tone::Bad, &counts));
    }
    if strict && warnings > 0 {
        let counts = screen.paint(Tone::Bad, &counted(warnings, "warning"));
        return format!("{name} is not valid with --strict: {counts}.\n");
    }
    let config = &reading.config;
    let parts = [
        counted(config.components.len(), "component"),
        counted(config.actions.len(), "action"),
        counted(config.inputs.len(), "input"),
    ];
    let warnings_text =
        if warnings > 0 { format!(", {}", counted(warnings, "warning")) } else { String::new() };
    let good = screen.paint(Tone::Good, "valid");
    format!("{name} is {good}: {}{warnings_text}.\n", parts.join(", "))
}

/// Summary of a directory for a terminal. JSON output contains everything.
fn summary(config: &Value, reading: &Reading, screen: &Screen) -> String {
    let name = config["name"].as_str().unwrap_or("-");
    let errors = reading.diagnostics.iter().filter(|finding| finding.is_error()).count();
    config_text(config, screen) + "\n" + &result_line(name, reading, (errors, false), screen)
}

/// Formats a summary of a config from a local directory or from the server.
pub(crate) fn config_text(config: &Value, screen: &Screen) -> String {
    let string = |pointer: &str| config.pointer(pointer).and_then(Value::as_str).unwrap_or("-");
    let texts = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        items.map(str::to_owned).collect()
    };
    let list =
        |pointer: &str| config.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let mut text = format!("{}  {}\n", string("/name"), string("/metadata/display_name"));
    text += &format!("  sandbox  {}\n", string("/sandbox/repo/repo"));
    text += &format!("  runner   {}\n", string("/runner/runner_type"));
    text += &format!("  stack    {}\n\n", string("/stack/type"));
    let mut table = crate::render::Table::new(["LAYER", "COMPONENT", "TYPE", "DEPENDS ON"]);
    for (layer, names) in list("/layers").enumerate() {
        for name in texts(names) {
            let component =
                list("/components/list").find(|component| component["name"] == name.as_str());
            let component = component.cloned().unwrap_or_default();
            let kind = component["type"].as_str().unwrap_or_default().to_owned();
            table.row([(layer + 1).to_string(), name, kind, texts(&component["deps"]).join(", ")]);
        }
    }
    text += &table.text(screen);
    for cycle in list("/cycles") {
        let cycle = texts(cycle).join(" → ");
        text += &format!("dependency cycle of components: {cycle}\n");
    }
    let groups = [
        ("inputs", "/inputs/names"),
        ("sensitive", "/inputs/sensitive"),
        ("secrets", "/secrets/names"),
    ];
    for (label, pointer) in groups {
        let names: Vec<String> =
            list(pointer).filter_map(Value::as_str).map(str::to_owned).collect();
        if !names.is_empty() {
            text += &format!("{label}: {}\n", names.join(", "));
        }
    }
    text
}
