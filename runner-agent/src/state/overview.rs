//! States of all components on this host, for `stead-runner state list`.
use std::{fs, io, path::Path};

use super::{StateError, StateMark, StateStore};

/// Component and its state, for `stead-runner state list`.
#[derive(Debug)]
pub struct Overview {
    pub component: String,
    /// Lineage and serial of the component's state, or the error from reading it.
    pub mark: Result<StateMark, StateError>,
    /// True if only this host has the newest state.
    pub is_pending: bool,
    /// Reason that blocks plans of the component.
    pub blocked: Option<String>,
}

/// Returns all components below `root`, by name.
pub fn overview(root: &Path) -> io::Result<Vec<Overview>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let component = entry.file_name().to_string_lossy().into_owned();
        let store = StateStore::new(root, &component);
        let blocked = match (store.unresolved()?.first(), store.in_progress()) {
            (Some(file), _) => Some(format!("rescued state in {}", file.display())),
            (None, Ok(Some(record))) => Some(format!("apply {} did not end", record.execution)),
            (None, Err(error)) => Some(error.to_string()),
            (None, Ok(None)) => None,
        };
        let is_pending = store.pending().is_ok_and(|pending| pending.is_some());
        all.push(Overview { component, mark: store.mark(), is_pending, blocked });
    }
    all.sort_unstable_by(|one, other| one.component.cmp(&other.component));
    Ok(all)
}
