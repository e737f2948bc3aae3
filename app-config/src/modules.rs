//! Checks local Terraform modules against the variables that the config sets and the outputs that
//! templates read. The check evaluates no expression; the build runs `terraform validate`.
use std::collections::{BTreeMap, BTreeSet};

use hcl_edit::{parser::parse_body, structure::Body};
use serde_json::Value;

use crate::{
    diagnostic::{Diagnostic, Location, Severity, nearest},
    model::{AppConfig, Module, TERRAFORM_MODULE},
    refs::Reads,
    text::{Origin, Text},
    tree::{SANDBOX, Tree},
};

/// Maximum size of a parsed file. The build validates larger files.
const MAX_BYTES: usize = 1 << 20;

/// Directory of a module, and its path for findings.
#[derive(Debug, Clone, Default)]
pub struct Local {
    pub tree: Tree,
    pub path: String,
}

#[derive(Debug, Default)]
struct Interface {
    /// Variables by name. The value is true if the variable has a default.
    variables: BTreeMap<String, bool>,
    outputs: BTreeSet<String>,
}

/// Checks the modules of these components (and of [`SANDBOX`]) against the config.
pub fn check(config: &AppConfig, modules: &BTreeMap<String, Local>) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    let mut interfaces = BTreeMap::new();
    for (name, module) in terraform_modules(config) {
        let Some(local) = modules.get(name) else { continue };
        match interface(local) {
            Ok(Some(interface)) => {
                variables(config, name, module, &interface, &mut findings);
                interfaces.insert(name, interface);
            }
            Ok(None) => {}
            Err(broken) => findings.extend(broken),
        }
    }
    outputs(config, &interfaces, &mut findings);
    findings
}

fn terraform_modules(config: &AppConfig) -> impl Iterator<Item = (&str, &Module)> {
    let sandbox = config.sandbox.iter().map(|sandbox| (SANDBOX, &sandbox.module));
    let components = config.components.iter().map(|one| (one.name.as_str(), &one.module));
    sandbox.chain(components).filter(|(_, module)| module.kind == TERRAFORM_MODULE)
}

/// Reads the variables and outputs of a module. Returns `None` if a file is too large or not UTF-8,
/// because the result would be incomplete, and for a module without content.
fn interface(local: &Local) -> Result<Option<Interface>, Vec<Diagnostic>> {
    let (mut interface, mut broken, mut is_known, mut is_empty) =
        (Interface::default(), Vec::new(), true, true);
    for (path, file) in local.tree.iter().filter(|(path, _)| !path.contains('/')) {
        let is_json = path.ends_with(".tf.json") || path.ends_with(".tofu.json");
        if !is_json && !path.ends_with(".tf") && !path.ends_with(".tofu") {
            continue;
        }
        let text = std::str::from_utf8(&file.bytes).ok();
        let Some(text) = text.filter(|text| text.len() <= MAX_BYTES) else {
            is_known = false;
            continue;
        };
        is_empty &= text.trim().is_empty();
        let read = if is_json {
            serde_json::from_str(text)
                .map(|value| interface.add_json(&value))
                .map_err(|error| (error.to_string(), error.line(), error.column()))
        } else {
            parse_body(text).map(|body| interface.add(&body)).map_err(|error| {
                let at = error.location();
                (error.message().replace('\n', ", "), at.line(), at.column())
            })
        };
        if let Err((why, line, column)) = read {
            let message = format!("cannot parse this module file: {why}");
            let finding = Diagnostic::error(
                "bad_module",
                message,
                "correct the file; `terraform validate` shows the error",
            );
            let (line, column) = (line as u32, column as u32);
            let path = format!("{}{path}", local.path);
            broken.push(finding.at(&path, Location { line, column, length: 1 }));
        }
    }
    match broken.is_empty() {
        true => Ok(Some(interface).filter(|_| is_known && !is_empty)),
        false => Err(broken),
    }
}

impl Interface {
    fn add(&mut self, body: &Body) {
        for block in body.blocks() {
            let [label] = block.labels.as_slice() else { continue };
            match block.ident.as_str() {
                "variable" => {
                    let has_default = block.body.has_attribute("default");
                    self.variable(label.as_str(), has_default);
                }
                "output" => drop(self.outputs.insert(label.as_str().to_string())),
                _ => {}
            }
        }
    }

    /// Adds the variables and outputs of a JSON file. Each block is one object by name, or a list
    /// of such objects.
    fn add_json(&mut self, value: &Value) {
        let named = |key: &str| -> Vec<(String, Value)> {
            let items = match value.get(key) {
                Some(Value::Array(items)) => items.clone(),
                Some(one) => vec![one.clone()],
                None => vec![],
            };
            let objects = items.into_iter().filter_map(|item| item.as_object().cloned());
            objects.flatten().collect()
        };
        for (name, body) in named("variable") {
            self.variable(&name, body.get("default").is_some());
        }
        self.outputs.extend(named("output").into_iter().map(|(name, _)| name));
    }

    /// Records a variable. An override file may add the default of a recorded variable.
    fn variable(&mut self, name: &str, has_default: bool) {
        *self.variables.entry(name.to_string()).or_default() |= has_default;
    }
}

fn variables(
    config: &AppConfig,
    name: &str,
    module: &Module,
    interface: &Interface,
    findings: &mut Vec<Diagnostic>,
) {
    let file = file_of(config, name);
    for (given, text) in &module.vars {
        if interface.variables.contains_key(given) {
            continue;
        }
        // A mistyped name can only refer to a variable that has no value yet.
        let open = interface.variables.keys().filter(|known| !module.vars.contains_key(*known));
        let message = format!("the module of `{name}` has no variable `{given}`");
        let (severity, remedy) = match nearest(given, open.map(String::as_str)) {
            Some(suggestion) => (Severity::Error, format!("did you mean `{suggestion}`?")),
            None => {
                let remedy = "remove the variable from [vars], or declare it in the module";
                (Severity::Warning, remedy.to_string())
            }
        };
        let finding = Diagnostic::new(severity, "unknown_variable", message, remedy);
        findings.push(finding.at(file, text.origin.place(text.value.chars().count())));
    }
    // The names in a variables file are known only after the file is rendered.
    if !module.var_files.is_empty() {
        return;
    }
    let environment = config.runner.iter().flat_map(|runner| runner.env_vars.keys());
    let environment: BTreeSet<&str> = environment
        .chain(module.env_vars.keys())
        .filter_map(|variable| variable.strip_prefix("TF_VAR_"))
        .collect();
    let required = interface.variables.iter().filter(|(_, has_default)| !**has_default);
    for (missing, _) in required.filter(|(name, _)| {
        !module.vars.contains_key(*name) && !environment.contains(name.as_str())
    }) {
        let message = format!(
            "the module of `{name}` requires the variable `{missing}`, but nothing sets it"
        );
        let remedy = format!(
            "add the variable to [vars], or pass it from the customer's runner: --pass-env TF_VAR_{missing}"
        );
        let finding = Diagnostic::warning("missing_variable", message, remedy);
        findings.push(finding.at(file, module.at.place(0)));
    }
}

fn file_of<'c>(config: &'c AppConfig, name: &str) -> &'c str {
    config.component(name).map_or("sandbox.toml", |component| &component.file)
}

/// Reports outputs that templates require and modules do not declare.
fn outputs(
    config: &AppConfig,
    interfaces: &BTreeMap<&str, Interface>,
    findings: &mut Vec<Diagnostic>,
) {
    let modules = terraform_modules(config).flat_map(|(_, module)| &module.texts);
    let actions = config.actions.iter().flat_map(|action| &action.texts);
    let runner = config.runner.iter().flat_map(|runner| runner.env_vars.values());
    for text in modules.chain(actions).chain(runner) {
        // The reader of the config reports templates that cannot be parsed.
        let Ok(reads) = Reads::of_one(text) else { continue };
        let sandbox = reads.needed_sandbox.iter().map(|output| (SANDBOX, output));
        let components = reads.needed_outputs.iter().map(|(name, output)| (name.as_str(), output));
        for (name, output) in sandbox.chain(components) {
            let Some(interface) = interfaces.get(name) else { continue };
            if interface.outputs.contains(output) {
                continue;
            }
            let what = if name == SANDBOX { "the sandbox".into() } else { format!("`{name}`") };
            let message = format!("the module of {what} has no output `{output}`");
            let known = interface.outputs.iter().map(String::as_str);
            let remedy = match nearest(output, known) {
                Some(suggestion) => format!("did you mean `{suggestion}`?"),
                None => "declare the output in the module".to_string(),
            };
            let finding = Diagnostic::error("unknown_output", message, remedy);
            findings.push(finding.at(&text.origin.file, place(text, output)));
        }
    }
}

/// Location of the first occurrence of a name after a dot in a text.
fn place(text: &Text, name: &str) -> Location {
    let Text { value, origin } = text;
    let dotted = value.find(&format!(".{name}")).map_or(0, |at| at + 1);
    let Location { line, column, .. } = Origin::within(origin, value, dotted..dotted);
    Location { line, column, length: name.chars().count() as u32 }
}
