//! What all file kinds share: the files, the findings, and which files go to whom.
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

use serde_json::Value;

use super::{loose, names::Names, section::Section, sort, unacted, unknown};
use crate::{
    diagnostic::{Diagnostic, Place, Severity},
    document::Document,
    model::{Beside, FileRef},
    text::{Origin, Spans, Text},
    tree::{PluginPin, Tree, sha256},
};

/// More findings than this are counted, not shown.
const MOST: usize = 1000;
/// Each key that names a file copies it, so that a short file could name a large one without end.
const MOST_FOLLOWED: usize = 64 << 20;

pub struct Reader<'t> {
    pub app: &'t Tree,
    pub plugins: &'t [PluginPin],
    notes: RefCell<Vec<Diagnostic>>,
    /// Files that could not be parsed.
    malformed: RefCell<BTreeSet<String>>,
    refs: RefCell<BTreeSet<FileRef>>,
    pub names: RefCell<Names>,
    /// Where an install's file gives an input, by file and input.
    pub given: RefCell<BTreeMap<(String, String), Origin>>,
    /// Templates outside of what is deployed, and the defaults of inputs that are templates.
    pub loose: RefCell<Vec<Text>>,
    pub defaults: RefCell<Vec<(String, Text)>>,
    remotes: RefCell<BTreeSet<String>>,
    spans: RefCell<Spans>,
    beside: RefCell<Beside>,
    /// Schedules that never come, so far.
    pub nevers: Cell<usize>,
    /// Bytes of content files so far, each as often as it is named.
    followed: Cell<usize>,
    /// Keys and sections that this release reads and does not act on.
    unacted: RefCell<unacted::Found>,
    /// Every key that the reader knows, by kind of file.
    #[cfg(test)]
    pub asked: RefCell<BTreeSet<(String, String)>>,
}

/// Whether a finding reports a name as absent that an unparsed file may declare.
fn may_be_in(malformed: &BTreeSet<String>, note: &Diagnostic) -> bool {
    let homes: &[&str] = match note.code {
        "unknown_action" => &["actions"],
        "unknown_component" => &["components"],
        "unknown_group" | "unknown_input" => &["inputs"],
        "unknown_role" => &["permissions", "break_glass"],
        "unknown_secret" => &["secrets"],
        "never_fires" => &["components", "inputs", "sandbox", "secrets"],
        // A name of a kind that has no code of its own.
        "bad_value" if note.message.starts_with("there is no ") => &[""],
        _ => return false,
    };
    // A name that is nearly a declared one is mistyped, whatever the file declares.
    !note.remedy.starts_with("did you mean")
        && malformed.iter().any(|file| homes.iter().any(|home| file.starts_with(home)))
}

/// What was found beside the typed config.
pub struct Found {
    pub diagnostics: Vec<Diagnostic>,
    pub file_refs: Vec<FileRef>,
    pub remotes: Vec<String>,
    pub spans: Spans,
    pub beside: Beside,
}

impl<'t> Reader<'t> {
    pub fn new(app: &'t Tree, plugins: &'t [PluginPin]) -> Self {
        Reader {
            app,
            plugins,
            notes: RefCell::default(),
            malformed: RefCell::default(),
            refs: RefCell::default(),
            names: RefCell::default(),
            given: RefCell::default(),
            loose: RefCell::default(),
            defaults: RefCell::default(),
            remotes: RefCell::default(),
            spans: RefCell::default(),
            beside: RefCell::default(),
            nevers: Cell::default(),
            followed: Cell::default(),
            unacted: RefCell::default(),
            #[cfg(test)]
            asked: RefCell::default(),
        }
    }

    #[cfg(test)]
    pub fn asked(&self, file: &str, path: &str, keys: &BTreeSet<String>) {
        let Some(kind) = unacted::file_kind(file) else { return };
        let path = unacted::without_indices(path);
        let asked = keys.iter().map(|key| (kind.to_string(), format!("{path}{key}")));
        self.asked.borrow_mut().extend(asked);
    }

    pub fn found_unacted(&self, change: impl FnOnce(&mut unacted::Found)) {
        change(&mut self.unacted.borrow_mut());
    }

    pub fn finish(self) -> Found {
        let mut notes = self.notes.into_inner();
        notes.extend(self.names.into_inner().check());
        let malformed = self.malformed.into_inner();
        notes.retain(|note| !may_be_in(&malformed, note));
        sort(&mut notes);
        if notes.len() > MOST {
            let left = notes.len() - MOST;
            notes.truncate(MOST);
            let message = format!("there are {left} more findings");
            notes.push(Diagnostic::warning("too_many", message, "correct these first"));
        }
        // Never cut off: there is at most one of each kind.
        notes.extend(self.unacted.into_inner().into_diagnostics());
        Found {
            diagnostics: notes,
            file_refs: self.refs.into_inner().into_iter().collect(),
            remotes: self.remotes.into_inner().into_iter().collect(),
            spans: self.spans.into_inner(),
            beside: self.beside.into_inner(),
        }
    }

    pub fn note(&self, diagnostic: Diagnostic) {
        self.notes.borrow_mut().push(diagnostic);
    }

    /// A finding about a whole file or, with an empty path, about the directory.
    pub fn about(&self, severity: Severity, code: &'static str, file: &str, says: (String, &str)) {
        let (message, remedy) = says;
        let finding = Diagnostic::new(severity, code, message, remedy);
        self.note(finding.at(file, Place::default()));
    }

    /// Counts a followed text; whether it is more than a directory may name.
    pub fn is_too_much(&self, text: Option<&str>) -> bool {
        self.followed.set(self.followed.get() + text.map_or(0, str::len));
        self.followed.get() > MOST_FOLLOWED
    }

    /// A remote text that the directory does not hold.
    pub fn wants(&self, url: &str) {
        self.remotes.borrow_mut().insert(url.to_string());
    }

    /// A key that is in no model, and yet makes another version of its part.
    pub fn is_beside(&self, file: &str, path: String, key: &str, value: Value) {
        // Whoever has such an address can write to the channel.
        let value = match key {
            "slack_webhook_url" => sha256(value.to_string().as_bytes()).to_string().into(),
            _ => value,
        };
        self.beside.borrow_mut().entry(file.to_string()).or_default().insert(path, value);
    }

    pub fn refers(&self, reference: FileRef) {
        self.refs.borrow_mut().insert(reference);
    }

    /// Whether the directory is of the older format, which had everything in one file.
    pub fn is_legacy(&self) -> bool {
        self.app.get("metadata.toml").is_none() && unknown::legacy(self.app).next().is_some()
    }

    /// Parses `path` if it is there. A blank file is as good as none.
    pub fn document(&self, path: &str) -> Option<Document> {
        let file = self.app.get(path)?;
        match Document::parse(path, &file.bytes) {
            Ok(document) if document.root.is_empty() => {
                let says = ("this file says nothing".to_string(), "fill it, or remove it");
                self.about(Severity::Warning, "empty_file", path, says);
                None
            }
            Ok(document) => {
                self.loose.borrow_mut().extend(loose::texts(&document));
                self.spans.borrow_mut().extend(path, document.spans().into_iter());
                unacted::look_for(&document, &mut self.unacted.borrow_mut());
                Some(document)
            }
            Err(findings) => {
                self.malformed.borrow_mut().insert(path.to_owned());
                findings.into_iter().for_each(|finding| self.note(finding));
                None
            }
        }
    }

    /// Every TOML file below `directory`, however deep, in the order of their paths.
    pub fn documents(&self, directory: &str) -> Vec<Document> {
        let prefix = format!("{directory}/");
        let paths = self.app.iter().map(|(path, _)| path);
        paths
            .filter(|path| path.starts_with(&prefix) && path.ends_with(".toml"))
            .filter_map(|path| self.document(path))
            .collect()
    }

    /// For the kinds that are one file or a directory of files. Both at once is an error.
    pub fn either(&self, name: &str) -> (Option<Document>, Vec<Document>) {
        let single = self.document(&format!("{name}.toml"));
        let many = self.documents(name);
        if single.is_some() && !many.is_empty() {
            let message = format!("there is both {name}.toml and a directory {name}/");
            let remedy = "keep one of them";
            self.about(Severity::Error, "both_forms", &format!("{name}.toml"), (message, remedy));
        }
        (single, many)
    }

    pub fn section<'d>(&'d self, document: &'d Document) -> Section<'d> {
        Section::root(self, document)
    }
}
