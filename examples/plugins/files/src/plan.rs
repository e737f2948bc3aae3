//! What would have to be done, written down so completely that the apply needs nothing else.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Component, Path},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    protocol::{Given, Mark, On, Operation, Refusal, Settings},
    state,
};

/// The plan file.
#[derive(Serialize, Deserialize)]
pub struct Plan {
    pub state: Mark,
    pub effects: Vec<Effect>,
}

/// One file.
#[derive(Serialize, Deserialize)]
pub struct Effect {
    pub path: String,
    pub action: Action,
    /// Base64; of what is deleted there is none.
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
    /// What the file is to have.
    pub fn content(&self) -> Result<Vec<u8>, Refusal> {
        STANDARD
            .decode(self.content.as_deref().unwrap_or_default())
            .map_err(|_| Refusal::Refused("the plan file is damaged".into()))
    }
}

/// Every file that there should be: the source's, and over them the variables'.
pub fn wanted(given: &Given) -> Result<BTreeMap<String, Vec<u8>>, Refusal> {
    let mut files = BTreeMap::new();
    if given.source_dir.is_dir() {
        collect(&given.source_dir, Path::new(""), &mut files)?;
    }
    let settings: Settings =
        serde_json::from_value(Value::Object(given.inputs.settings.clone()))
            .map_err(|why| Refusal::Refused(format!("the component's settings: {why}")))?;
    files.retain(|path, _| !settings.leave_out.iter().any(|end| path.ends_with(end)));
    for (path, content) in &given.inputs.vars {
        let plain = |part| matches!(part, Component::Normal(_));
        if path.is_empty() || !Path::new(path).components().all(plain) {
            return Err(Refusal::Refused(format!("{path:?} is no path below the root")));
        }
        files.insert(path.clone(), content.clone().into_bytes());
    }
    Ok(files)
}

fn collect(
    root: &Path,
    below: &Path,
    files: &mut BTreeMap<String, Vec<u8>>,
) -> Result<(), Refusal> {
    for entry in fs::read_dir(root.join(below)).on("the source")? {
        let entry = entry.on("the source")?;
        let path = below.join(entry.file_name());
        if entry.file_type().on("the source")?.is_dir() {
            collect(root, &path, files)?;
        } else {
            let content = fs::read(entry.path()).on("the source")?;
            files.insert(path.display().to_string(), content);
        }
    }
    Ok(())
}

pub fn make(given: &Given, plan_file: &Path) -> Result<Value, Refusal> {
    let state = state::load(given)?;
    let wanted = match given.operation {
        Operation::Apply => wanted(given)?,
        Operation::Destroy => BTreeMap::new(),
    };
    let mut effects = Vec::new();
    for (path, content) in &wanted {
        let here = match fs::read(state::root(given).join(path)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            here => Some(here.on(path)?),
        };
        let action = match here {
            None => Action::Create,
            // A crash between a file and the state leaves one that is as we wanted it.
            Some(here) if !state.files.contains_key(path) && here == *content => Action::Create,
            Some(_) if !state.files.contains_key(path) => {
                return Err(Refusal::Refused(format!("{path} is there and is not ours")));
            }
            Some(here) if here != *content => Action::Update,
            Some(_) => continue,
        };
        let content = Some(STANDARD.encode(content));
        effects.push(Effect { path: path.clone(), action, content });
    }
    let unwanted = state.files.keys().filter(|path| !wanted.contains_key(*path));
    effects.extend(unwanted.map(|path| {
        let path = path.clone();
        Effect { path, action: Action::Delete, content: None }
    }));
    let count = |action| effects.iter().filter(|effect| effect.action == action).count();
    let answer = json!({
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
    let plan = Plan { state: state.mark().clone(), effects };
    let text = serde_json::to_vec(&plan).map_err(io::Error::from).on("the plan file")?;
    state::replace(plan_file, &text).on("the plan file")?;
    Ok(answer)
}
