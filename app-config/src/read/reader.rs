//! What all file kinds share: the files, the findings, and which files go to whom.
use std::{cell::RefCell, collections::BTreeSet};

use super::{section::Section, sort};
use crate::{
    diagnostic::{Diagnostic, Severity},
    document::Document,
    model::FileRef,
    tree::{PluginPin, Tree},
};

pub struct Reader<'t> {
    pub app: &'t Tree,
    pub plugins: &'t [PluginPin],
    notes: RefCell<Vec<Diagnostic>>,
    refs: RefCell<BTreeSet<FileRef>>,
}

impl<'t> Reader<'t> {
    pub fn new(app: &'t Tree, plugins: &'t [PluginPin]) -> Self {
        Reader { app, plugins, notes: RefCell::default(), refs: RefCell::default() }
    }

    pub fn finish(self) -> (Vec<Diagnostic>, Vec<FileRef>) {
        let mut notes = self.notes.into_inner();
        sort(&mut notes);
        (notes, self.refs.into_inner().into_iter().collect())
    }

    pub fn note(&self, diagnostic: Diagnostic) {
        self.notes.borrow_mut().push(diagnostic);
    }

    /// A finding about a whole file or, with an empty path, about the directory.
    pub fn about(&self, severity: Severity, code: &'static str, file: &str, says: (String, &str)) {
        let (message, remedy) = says;
        let (file, remedy) = (file.to_string(), remedy.to_string());
        self.note(Diagnostic { severity, code, file, line: 0, column: 0, message, remedy });
    }

    pub fn refers(&self, reference: FileRef) {
        self.refs.borrow_mut().insert(reference);
    }

    /// Parses `path` if it is there. A blank file is as good as none.
    pub fn document(&self, path: &str) -> Option<Document> {
        let file = self.app.get(path)?;
        match Document::parse(path, &file.bytes) {
            Ok(document) if document.root.is_empty() => None,
            Ok(document) => Some(document),
            Err(finding) => {
                self.note(finding);
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
