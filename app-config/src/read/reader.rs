//! Shared state of all file kinds: files, findings, and the assignment of files to kinds.
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

use serde_json::Value;

use super::{ignored_settings, names::Names, section::Section, sort, undeployed_texts, unknown};
use crate::{
    diagnostic::{Diagnostic, Location, Severity},
    document::Document,
    model::{FileRef, UnmodeledSettings},
    text::{Origin, Spans, Text},
    tree::{PluginPin, Tree, sha256},
};

/// Maximum number of findings that are shown. The rest is only counted.
const MAX_FINDINGS: usize = 1000;
/// Maximum total size of named files. Each key that names a file copies the file, so a small file
/// could name a large one repeatedly.
const MAX_NAMED_BYTES: usize = 64 << 20;

pub struct Reader<'t> {
    pub app: &'t Tree,
    pub plugins: &'t [PluginPin],
    findings: RefCell<Vec<Diagnostic>>,
    /// Files that could not be parsed.
    malformed: RefCell<BTreeSet<String>>,
    refs: RefCell<BTreeSet<FileRef>>,
    pub names: RefCell<Names>,
    /// Location of an input's value in an install's file, by file and input.
    pub install_inputs: RefCell<BTreeMap<(String, String), Origin>>,
    /// Templates outside of deployed parts.
    pub undeployed_texts: RefCell<Vec<Text>>,
    /// Templates of input defaults, with the name of the input.
    pub defaults: RefCell<Vec<(String, Text)>>,
    remotes: RefCell<BTreeSet<String>>,
    spans: RefCell<Spans>,
    unmodeled: RefCell<UnmodeledSettings>,
    /// Number of schedules found so far that never fire.
    pub unmatched_schedules: Cell<usize>,
    /// Total size of named files so far. A file counts each time it is named.
    followed: Cell<usize>,
    /// Keys and sections that this release reads but does not act on.
    ignored_settings: RefCell<ignored_settings::IgnoredSettings>,
    /// All keys that the reader knows, by file kind.
    #[cfg(test)]
    pub known_keys: RefCell<BTreeSet<(String, String)>>,
}

/// True if the finding reports an absent name that an unparsed file may declare.
fn may_be_in(malformed: &BTreeSet<String>, finding: &Diagnostic) -> bool {
    let declaring: &[&str] = match finding.code {
        "unknown_action" => &["actions"],
        "unknown_component" => &["components"],
        "unknown_group" | "unknown_input" => &["inputs"],
        "unknown_role" => &["permissions", "break_glass"],
        "unknown_secret" => &["secrets"],
        "never_fires" => &["components", "inputs", "sandbox", "secrets"],
        // Unknown names of the other kinds have no code of their own.
        "bad_value" if finding.message.starts_with("unknown ") => &[""],
        _ => return false,
    };
    // A name that is similar to a declared name is mistyped, regardless of the unparsed file.
    !finding.remedy.starts_with("did you mean")
        && malformed.iter().any(|file| declaring.iter().any(|prefix| file.starts_with(prefix)))
}

/// Results besides the typed config.
pub struct ReaderResult {
    pub diagnostics: Vec<Diagnostic>,
    pub file_refs: Vec<FileRef>,
    pub remotes: Vec<String>,
    pub spans: Spans,
    pub unmodeled: UnmodeledSettings,
}

impl<'t> Reader<'t> {
    pub fn new(app: &'t Tree, plugins: &'t [PluginPin]) -> Self {
        Reader {
            app,
            plugins,
            findings: RefCell::default(),
            malformed: RefCell::default(),
            refs: RefCell::default(),
            names: RefCell::default(),
            install_inputs: RefCell::default(),
            undeployed_texts: RefCell::default(),
            defaults: RefCell::default(),
            remotes: RefCell::default(),
            spans: RefCell::default(),
            unmodeled: RefCell::default(),
            unmatched_schedules: Cell::default(),
            followed: Cell::default(),
            ignored_settings: RefCell::default(),
            #[cfg(test)]
            known_keys: RefCell::default(),
        }
    }

    #[cfg(test)]
    pub fn record_keys(&self, file: &str, path: &str, keys: &BTreeSet<String>) {
        let Some(kind) = ignored_settings::file_kind(file) else { return };
        let path = ignored_settings::without_indices(path);
        let keys = keys.iter().map(|key| (kind.to_string(), format!("{path}{key}")));
        self.known_keys.borrow_mut().extend(keys);
    }

    pub fn found_ignored(&self, change: impl FnOnce(&mut ignored_settings::IgnoredSettings)) {
        change(&mut self.ignored_settings.borrow_mut());
    }

    pub fn finish(self) -> ReaderResult {
        let mut findings = self.findings.into_inner();
        findings.extend(self.names.into_inner().check());
        let malformed = self.malformed.into_inner();
        findings.retain(|finding| !may_be_in(&malformed, finding));
        sort(&mut findings);
        if findings.len() > MAX_FINDINGS {
            let left = findings.len() - MAX_FINDINGS;
            findings.truncate(MAX_FINDINGS);
            let message = format!("there are {left} more findings");
            findings.push(Diagnostic::warning(
                "too_many",
                message,
                "correct the listed findings first",
            ));
        }
        // Not limited by [`MAX_FINDINGS`]: each kind occurs at most once.
        findings.extend(self.ignored_settings.into_inner().into_diagnostics());
        ReaderResult {
            diagnostics: findings,
            file_refs: self.refs.into_inner().into_iter().collect(),
            remotes: self.remotes.into_inner().into_iter().collect(),
            spans: self.spans.into_inner(),
            unmodeled: self.unmodeled.into_inner(),
        }
    }

    pub fn report(&self, diagnostic: Diagnostic) {
        self.findings.borrow_mut().push(diagnostic);
    }

    /// Records a finding about a whole file or, with an empty path, about the directory.
    pub fn about(&self, severity: Severity, code: &'static str, file: &str, texts: (String, &str)) {
        let (message, remedy) = texts;
        let finding = Diagnostic::new(severity, code, message, remedy);
        self.report(finding.at(file, Location::default()));
    }

    /// Counts the size of a named text. Returns true if the total exceeds the maximum.
    pub fn is_too_much(&self, text: Option<&str>) -> bool {
        self.followed.set(self.followed.get() + text.map_or(0, str::len));
        self.followed.get() > MAX_NAMED_BYTES
    }

    /// Records a remote text that the directory does not contain.
    pub fn record_remote(&self, url: &str) {
        self.remotes.borrow_mut().insert(url.to_string());
    }

    /// Records a value that no model has but that changes the version of its part.
    pub fn record_unmodeled(&self, file: &str, path: String, key: &str, value: Value) {
        // The webhook URL is a credential: it allows writing to the channel.
        let value = match key {
            "slack_webhook_url" => sha256(value.to_string().as_bytes()).to_string().into(),
            _ => value,
        };
        self.unmodeled.borrow_mut().entry(file.to_string()).or_default().insert(path, value);
    }

    pub fn record_file_ref(&self, reference: FileRef) {
        self.refs.borrow_mut().insert(reference);
    }

    /// True for a directory of the older one-file format.
    pub fn is_legacy(&self) -> bool {
        self.app.get("metadata.toml").is_none() && unknown::legacy(self.app).next().is_some()
    }

    /// Parses `path` if it exists. An empty file counts as absent.
    pub fn document(&self, path: &str) -> Option<Document> {
        let file = self.app.get(path)?;
        match Document::parse(path, &file.bytes) {
            Ok(document) if document.root.is_empty() => {
                let texts = ("this file is empty".to_string(), "add content, or remove the file");
                self.about(Severity::Warning, "empty_file", path, texts);
                None
            }
            Ok(document) => {
                self.undeployed_texts.borrow_mut().extend(undeployed_texts::texts(&document));
                self.spans.borrow_mut().extend(path, document.spans().into_iter());
                ignored_settings::look_for(&document, &mut self.ignored_settings.borrow_mut());
                Some(document)
            }
            Err(findings) => {
                self.malformed.borrow_mut().insert(path.to_owned());
                findings.into_iter().for_each(|finding| self.report(finding));
                None
            }
        }
    }

    /// All TOML files below `directory` at any depth, sorted by path.
    pub fn documents(&self, directory: &str) -> Vec<Document> {
        let prefix = format!("{directory}/");
        let paths = self.app.iter().map(|(path, _)| path);
        paths
            .filter(|path| path.starts_with(&prefix) && path.ends_with(".toml"))
            .filter_map(|path| self.document(path))
            .collect()
    }

    /// Reads a kind that is one file or a directory of files. Both at once are an error.
    pub fn either(&self, name: &str) -> (Option<Document>, Vec<Document>) {
        let single = self.document(&format!("{name}.toml"));
        let many = self.documents(name);
        if single.is_some() && !many.is_empty() {
            let message = format!("{name}.toml and the directory {name}/ both exist");
            let remedy = "keep one of them";
            self.about(Severity::Error, "both_forms", &format!("{name}.toml"), (message, remedy));
        }
        (single, many)
    }

    pub fn section<'d>(&'d self, document: &'d Document) -> Section<'d> {
        Section::root(self, document)
    }
}
