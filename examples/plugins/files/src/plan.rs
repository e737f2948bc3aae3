//! Plans. Each plan contains everything that its apply requires.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Component, Path},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    protocol::{ErrorContext, Operation, Parameters, Refusal, Settings, StateId},
    state,
};

/// Content of a plan file: the state that the plan was made from, and the effects.
#[derive(Serialize, Deserialize)]
pub struct Plan {
    pub state: StateId,
    pub effects: Vec<Effect>,
}

/// Change of one file.
#[derive(Serialize, Deserialize)]
pub struct Effect {
    pub path: String,
    pub action: Action,
    /// Content in base64; absent for a deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Create,
    Update,
    Delete,
}

impl Effect {
    /// Returns the desired content of the file.
    pub fn content(&self) -> Result<Vec<u8>, Refusal> {
        STANDARD.decode(self.content.as_deref().unwrap_or_default()).map_err(|_| {
            Refusal::Refused("cannot apply: the plan file is corrupt; plan again".into())
        })
    }
}

/// Returns every desired file: those of the source, overridden by those of the variables.
pub fn desired_files(parameters: &Parameters) -> Result<BTreeMap<String, Vec<u8>>, Refusal> {
    let mut files = BTreeMap::new();
    if parameters.source_dir.is_dir() {
        collect(&parameters.source_dir, Path::new(""), &mut files)?;
    }
    let settings: Settings =
        serde_json::from_value(Value::Object(parameters.inputs.settings.clone()))
            .map_err(|why| Refusal::Refused(format!("invalid settings of the component: {why}")))?;
    files.retain(|path, _| !settings.leave_out.iter().any(|end| path.ends_with(end)));
    for (path, content) in &parameters.inputs.vars {
        let is_plain = |part| matches!(part, Component::Normal(_));
        if path.is_empty() || !Path::new(path).components().all(is_plain) {
            return Err(Refusal::Refused(format!(
                "invalid path {path:?}: it is not below the root"
            )));
        }
        files.insert(path.clone(), content.clone().into_bytes());
    }
    Ok(files)
}

/// Checks that the plugin can create the directory of the files.
pub fn root_check(parameters: &Parameters) -> Value {
    let root = state::root(parameters);
    let existing = root.ancestors().find(|dir| dir.exists());
    match existing.filter(|dir| dir.is_dir()) {
        Some(dir) => json!({
            "check": "root", "status": "ok", "message": format!("{} exists", dir.display()),
        }),
        None => json!({
            "check": "root",
            "status": "failed",
            "message": format!(
                "cannot create {}: it is below a file; set STEAD_FILES_ROOT to a directory",
                root.display()
            ),
        }),
    }
}

fn collect(
    root: &Path,
    below: &Path,
    files: &mut BTreeMap<String, Vec<u8>>,
) -> Result<(), Refusal> {
    for entry in fs::read_dir(root.join(below)).context("read the source")? {
        let entry = entry.context("read the source")?;
        let path = below.join(entry.file_name());
        if entry.file_type().context("read the source")?.is_dir() {
            collect(root, &path, files)?;
        } else {
            let content = fs::read(entry.path()).context("read the source")?;
            files.insert(path.display().to_string(), content);
        }
    }
    Ok(())
}

pub fn make(parameters: &Parameters, plan_file: &Path) -> Result<Value, Refusal> {
    let state = state::load(parameters)?;
    let desired = match parameters.operation {
        Operation::Apply => desired_files(parameters)?,
        Operation::Destroy => BTreeMap::new(),
    };
    let mut effects = Vec::new();
    for (path, content) in &desired {
        let existing = match fs::read(state::root(parameters).join(path)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            existing => Some(existing.context(&format!("read {path}"))?),
        };
        let action = match existing {
            None => Action::Create,
            // A crash between the write of a file and of the state leaves an unrecorded file with
            // the desired content.
            Some(existing) if !state.files.contains_key(path) && existing == *content => {
                Action::Create
            }
            Some(_) if !state.files.contains_key(path) => {
                return Err(Refusal::Refused(format!(
                    "cannot create {path}: a file that this plugin did not create exists; move that file"
                )));
            }
            Some(existing) if existing != *content => Action::Update,
            Some(_) => continue,
        };
        let content = Some(STANDARD.encode(content));
        effects.push(Effect { path: path.clone(), action, content });
    }
    let obsolete = state.files.keys().filter(|path| !desired.contains_key(*path));
    effects.extend(obsolete.map(|path| {
        let path = path.clone();
        Effect { path, action: Action::Delete, content: None }
    }));
    let count = |action| effects.iter().filter(|effect| effect.action == action).count();
    let response = json!({
        "noop": effects.is_empty(),
        "add": count(Action::Create),
        "change": count(Action::Update),
        "destroy": count(Action::Delete),
        "resources": effects.iter().map(|effect| match effect.action {
            Action::Create | Action::Update => json!({
                "address": effect.path, "action": effect.action, "attributes": ["content"],
            }),
            Action::Delete => json!({ "address": effect.path, "action": effect.action }),
        }).collect::<Vec<_>>(),
    });
    let plan = Plan { state: state.id().clone(), effects };
    let text = serde_json::to_vec(&plan).map_err(io::Error::from).context("write the plan file")?;
    state::replace(plan_file, &text).context("write the plan file")?;
    Ok(response)
}
