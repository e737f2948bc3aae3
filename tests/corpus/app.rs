//! Contents of an app directory, as its TOML files declare them.
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value as Json;
use toml::{Table, Value};

/// Triggers that a run fires by itself: at its end, or at a change of the inputs.
const FIRED: [&str; 5] = [
    "manual",
    "post-provision",
    "post-reprovision",
    "post-deploy-all-components",
    "post-update-inputs",
];

/// App directory, read without Stead.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    pub(crate) components: Vec<Component>,
    pub(crate) actions: Vec<Action>,
    pub(crate) sandbox: Option<Table>,
    pub(crate) inputs: Vec<Table>,
    /// Names of the secrets that the customer sets.
    pub(crate) secrets: Vec<String>,
    pub(crate) platform: &'static str,
    /// Variables that the templates read, such as `nuon.install_stack.outputs.region`.
    pub(crate) reads: BTreeSet<String>,
}

#[derive(Debug)]
pub(crate) struct Component {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// File of the component, relative to the app.
    pub(crate) file: PathBuf,
    pub(crate) settings: Table,
}

#[derive(Debug)]
pub(crate) struct Action {
    pub(crate) name: String,
    pub(crate) settings: Table,
}

/// Directory of a repository at a reference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source {
    pub(crate) host: String,
    /// `OWNER/NAME`.
    pub(crate) repo: String,
    pub(crate) directory: String,
    pub(crate) reference: String,
}

impl App {
    pub(crate) fn read(dir: &Path, inspected: &Json) -> App {
        let name = dir.file_name().unwrap().to_str().unwrap().to_owned();
        let component = |(file, settings): (PathBuf, Table)| {
            let (name, kind) = (text(&settings, "name")?, text(&settings, "type")?);
            Some(Component { name, kind, file, settings })
        };
        let action = |(_, settings): (PathBuf, Table)| {
            Some(Action { name: text(&settings, "name")?, settings })
        };
        let mut inputs: Vec<Table> = items(&table(&dir.join("inputs.toml")), "input");
        let files = tables(dir, "inputs").into_iter().map(|(_, table)| table);
        inputs.extend(files.flat_map(|table| match items(&table, "input") {
            several if several.is_empty() => vec![table],
            several => several,
        }));
        let runner = table(&dir.join("runner.toml"));
        let stack = table(&dir.join("stack.toml"));
        let words = [text(&runner, "runner_type"), text(&stack, "type")];
        let words: String = words.into_iter().flatten().collect();
        let platforms = ["aws", "gcp", "azure"];
        let sandbox = table(&dir.join("sandbox.toml"));
        App {
            name,
            dir: dir.to_owned(),
            components: tables(dir, "components").into_iter().filter_map(component).collect(),
            actions: tables(dir, "actions").into_iter().filter_map(action).collect(),
            sandbox: (!sandbox.is_empty()).then_some(sandbox),
            inputs,
            secrets: secrets(inspected),
            platform: platforms.into_iter().find(|one| words.contains(one)).unwrap_or("any"),
            reads: reads(inspected),
        }
    }

    /// Returns the outputs of action steps that the app reads: `ACTION/STEP/OUTPUT`.
    pub(crate) fn step_outputs(&self) -> Vec<String> {
        let of_step = |variable: &String| {
            let path = variable.strip_prefix("nuon.actions.workflows.")?;
            let (action, output) = path.split_once(".outputs.steps.")?;
            let (step, output) = output.split_once('.')?;
            let is_name =
                |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
            [action, step, output]
                .into_iter()
                .all(is_name)
                .then(|| format!("{action}/{step}/{output}"))
        };
        self.reads.iter().filter_map(of_step).collect()
    }

    /// Returns true if a part of the app needs a cluster.
    pub(crate) fn needs_cluster(&self) -> bool {
        let on_cluster = ["kubernetes_manifest", "helm_chart"];
        self.components.iter().any(|one| on_cluster.contains(&one.kind.as_str()))
    }

    /// Returns the hosts of texts that the app names by address.
    pub(crate) fn remote_hosts(&self) -> Vec<String> {
        let steps = self.actions.iter().flat_map(Action::steps);
        let tables = self.components.iter().map(|one| one.settings.clone()).chain(steps);
        let texts = tables.flat_map(|table| {
            ["manifest", "inline_contents"]
                .iter()
                .filter_map(|key| text(&table, key))
                .collect::<Vec<_>>()
        });
        let host = |text: String| {
            let rest = text.trim().strip_prefix("https://")?.to_owned();
            Some(rest.split('/').next()?.to_owned()).filter(|_| !rest.contains(char::is_whitespace))
        };
        let hosts: BTreeSet<String> = texts.filter_map(host).collect();
        hosts.into_iter().collect()
    }

    /// Returns the values of the app's own first install, as names and texts.
    pub(crate) fn example_inputs(&self) -> Vec<(String, String)> {
        let first = tables(&self.dir, "installs").into_iter().next();
        let groups = first.map(|(_, table)| items(&table, "inputs")).unwrap_or_default();
        groups.into_iter().flatten().map(|(name, value)| (name, plain(&value))).collect()
    }
}

impl Component {
    pub(crate) fn source(&self) -> Option<Source> {
        Source::of(&self.settings)
    }

    pub(crate) fn namespace(&self) -> Option<String> {
        text(&self.settings, "namespace")
    }
}

impl Action {
    /// Returns the triggers that this release reads but does not fire, with their components.
    pub(crate) fn triggers_by_hand(&self) -> Vec<String> {
        let triggers = items(&self.settings, "triggers").into_iter();
        let kinds = triggers.filter_map(|trigger| text(&trigger, "type"));
        kinds.filter(|kind| !FIRED.contains(&kind.as_str()) && kind != "cron").collect()
    }

    /// Returns whether a trigger by hand comes before the deploys of a component.
    pub(crate) fn precedes(&self, component: &str) -> bool {
        items(&self.settings, "triggers").iter().any(|trigger| {
            text(trigger, "type").as_deref() == Some("pre-deploy-component")
                && text(trigger, "component_name").as_deref() == Some(component)
        })
    }

    pub(crate) fn steps(&self) -> Vec<Table> {
        items(&self.settings, "steps")
    }
}

impl Source {
    /// Returns the repository of these settings, unless it is the app directory.
    pub(crate) fn of(settings: &Table) -> Option<Source> {
        let of_git = ["public_repo", "connected_repo"];
        let git = of_git.iter().find_map(|key| settings.get(*key)?.as_table())?;
        let repo = text(git, "repo").filter(|repo| repo != ".")?;
        let address = repo.trim_end_matches(".git").replace("git@", "").replace(':', "/");
        let parts: Vec<&str> = address.split('/').filter(|part| !part.is_empty()).collect();
        let (host, parts) = match parts.as_slice() {
            ["https" | "ssh" | "http", host, rest @ ..] => (*host, rest),
            [host, rest @ ..] if host.contains('.') && rest.len() > 1 => (*host, rest),
            rest => ("github.com", rest),
        };
        let directory = text(git, "directory").unwrap_or_default();
        let directory = directory.trim_start_matches("./").trim_matches('/');
        let reference = text(git, "branch").filter(|branch| !branch.is_empty());
        Some(Source {
            host: host.to_owned(),
            repo: parts.join("/"),
            directory: if directory == "." { String::new() } else { directory.to_owned() },
            reference: reference.unwrap_or_else(|| "main".into()),
        })
    }

    /// Returns true if the reference is a commit id, which no other repository can have.
    pub(crate) fn is_commit(&self) -> bool {
        let reference = &self.reference;
        reference.len() == 40 && reference.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

fn secrets(inspected: &Json) -> Vec<String> {
    let names = inspected["secrets"]["names"].as_array().into_iter().flatten();
    names.filter_map(|name| Some(name.as_str()?.to_owned())).collect()
}

/// Returns the variables that the templates of an app read.
fn reads(inspected: &Json) -> BTreeSet<String> {
    let of = |part: &str| inspected["templates"][part]["variables"].as_array().cloned();
    let all = ["files", "toml"].into_iter().filter_map(of).flatten();
    all.filter_map(|variable| Some(variable.as_str()?.to_owned())).collect()
}

/// Reads the TOML files below a directory of the app, sorted by path.
fn tables(dir: &Path, below: &str) -> Vec<(PathBuf, Table)> {
    let (mut open, mut files) = (vec![dir.join(below)], vec![]);
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => open.push(path),
                false if path.extension().is_some_and(|end| end == "toml") => files.push(path),
                false => {}
            }
        }
    }
    files.sort();
    let relative = |path: &PathBuf| path.strip_prefix(dir).unwrap().to_owned();
    files.iter().map(|path| (relative(path), table(path))).collect()
}

/// Reads a TOML file. A missing or invalid file is empty: the sync reports it.
fn table(path: &Path) -> Table {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.parse().unwrap_or_default()
}

/// Returns the tables of an array, or the single table.
pub(crate) fn items(table: &Table, key: &str) -> Vec<Table> {
    match table.get(key) {
        Some(Value::Array(items)) => {
            items.iter().filter_map(|item| item.as_table().cloned()).collect()
        }
        Some(Value::Table(one)) => vec![one.clone()],
        _ => vec![],
    }
}

pub(crate) fn text(table: &Table, key: &str) -> Option<String> {
    Some(table.get(key)?.as_str()?.to_owned())
}

/// Returns a value as the format writes it in a text.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
