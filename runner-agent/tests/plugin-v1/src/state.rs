//! State of the plugin. It distinguishes the plugin's own files from others, and a current plan
//! from a stale one.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;
use ulid::Ulid;

use crate::protocol::{ErrorContext, Parameters, Refusal, StateId};

/// Files of one component in one install.
#[derive(Default, Serialize, Deserialize)]
pub struct State {
    #[serde(flatten)]
    id: StateId,
    /// SHA-256 of the content, by path.
    pub files: BTreeMap<String, String>,
}

impl State {
    pub fn id(&self) -> &StateId {
        &self.id
    }

    /// Starts a new serial, which makes every earlier plan stale.
    pub fn begin(&mut self) {
        #[expect(clippy::disallowed_methods, reason = "the only id that the plugin creates")]
        self.id.lineage.get_or_insert_with(|| Ulid::new().to_string());
        self.id.serial += 1;
    }

    pub fn outputs(&self, parameters: &Parameters) -> Value {
        match self.files.is_empty() {
            true => json!({}),
            false => json!({
                "root": root(parameters),
                "files": self.files,
                // Changes if any file changes, so that dependent components detect the change.
                "digest": digest(json!(self.files).to_string().as_bytes()),
            }),
        }
    }

    pub fn save(&self, parameters: &Parameters) -> Result<(), Refusal> {
        let text = serde_json::to_vec(self).map_err(io::Error::from).context("write the state")?;
        replace(&path(parameters), &text).context("write the state")
    }
}

pub fn load(parameters: &Parameters) -> Result<State, Refusal> {
    match fs::read(path(parameters)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(State::default()),
        text => serde_json::from_slice(&text.context("read the state")?)
            .map_err(io::Error::from)
            .context("read the state"),
    }
}

fn path(parameters: &Parameters) -> PathBuf {
    parameters.state_dir.join("files.json")
}

/// Returns the directory of the component's files.
pub fn root(parameters: &Parameters) -> PathBuf {
    match env::var_os("STEAD_FILES_ROOT") {
        Some(root) => PathBuf::from(root).join(&parameters.component),
        None => parameters.state_dir.join("files"),
    }
}

/// Returns the SHA-256 as `sha256:` and hexadecimal digits.
pub fn digest(content: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(content)))
}

/// Writes a file atomically.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let dir = path.parent().ok_or_else(|| io::Error::other("the file has no parent directory"))?;
    fs::create_dir_all(dir)?;
    let mut file = NamedTempFile::new_in(dir)?;
    file.write_all(content)?;
    file.as_file().sync_data()?;
    file.persist(path).map(drop).map_err(|e| e.error)
}
