//! Which names a directory declares and which it mentions. Both are written down while files are
//! read and compared when all have been.
use std::collections::BTreeMap;

use super::section::Section;
use crate::{
    diagnostic::{Diagnostic, Severity, nearest},
    document::Node,
    text::Origin,
};

/// What can be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Action,
    Component,
    Context,
    Group,
    Input,
    Install,
    Runbook,
    Secret,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Action => "action",
            Kind::Component => "component",
            Kind::Context => "kubernetes context",
            Kind::Group => "input group",
            Kind::Input => "input",
            Kind::Install => "install",
            Kind::Runbook => "runbook",
            Kind::Secret => "secret",
        }
    }

    fn unknown(self) -> &'static str {
        match self {
            Kind::Action => "unknown_action",
            Kind::Component => "unknown_component",
            Kind::Group => "unknown_group",
            Kind::Input => "unknown_input",
            Kind::Secret => "unknown_secret",
            Kind::Context | Kind::Install | Kind::Runbook => "bad_value",
        }
    }
}

/// What was written down.
#[derive(Debug, Default)]
pub struct Names {
    declared: Vec<(Kind, String, Origin)>,
    mentioned: Vec<Mention>,
}

#[derive(Debug)]
struct Mention {
    kind: Kind,
    name: String,
    severity: Severity,
    origin: Origin,
}

impl Names {
    pub fn declare(&mut self, kind: Kind, name: &str, origin: Origin) {
        if !name.is_empty() {
            self.declared.push((kind, name.to_string(), origin));
        }
    }

    pub fn mention(&mut self, kind: Kind, name: &str, severity: Severity, origin: Origin) {
        self.mentioned.push(Mention { kind, name: name.to_string(), severity, origin });
    }

    /// Where a name is declared.
    pub fn place(&self, kind: Kind, name: &str) -> Option<&Origin> {
        let mut all = self.declared.iter();
        all.find(|(of, declared, _)| *of == kind && declared == name).map(|(_, _, origin)| origin)
    }

    /// The declared name that somebody probably meant, as a sentence.
    pub fn remedy(&self, kind: Kind, name: &str) -> String {
        let known: Vec<&str> = self
            .declared
            .iter()
            .filter(|(of, _, _)| *of == kind)
            .map(|(_, name, _)| name.as_str())
            .collect();
        match nearest(name, known.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None if known.is_empty() => format!("declare it; there is no {} yet", kind.word()),
            None if known.len() <= 12 => format!("use one of: {}", known.join(", ")),
            None => format!("correct the name, or declare the {}", kind.word()),
        }
    }

    /// Names that two things take, and names of nothing.
    pub fn check(&self) -> Vec<Diagnostic> {
        let mut findings = Vec::new();
        let mut taken: BTreeMap<(Kind, &str), &Origin> = BTreeMap::new();
        for (kind, name, origin) in &self.declared {
            let Some(other) = taken.insert((*kind, name), origin) else { continue };
            let (word, file, line) = (kind.word(), &other.file, other.line);
            let message =
                format!("the {word} `{name}` is described twice, here and in {file}:{line}");
            let finding = Diagnostic::error("duplicate_name", message, "rename one of them");
            findings.push(finding.at(&origin.file, origin.place(name.chars().count())));
        }
        for Mention { kind, name, severity, origin } in &self.mentioned {
            if taken.contains_key(&(*kind, name)) {
                continue;
            }
            let message = format!("there is no {} `{name}`", kind.word());
            let remedy = self.remedy(*kind, name);
            let finding = Diagnostic::new(*severity, kind.unknown(), message, remedy);
            findings.push(finding.at(&origin.file, origin.place(name.chars().count())));
        }
        findings
    }
}

impl Section<'_> {
    /// This table's own name, which has to be there.
    pub fn declared(&self, kind: Kind) -> String {
        let name = self.required("name");
        self.reader.names.borrow_mut().declare(kind, &name, self.origin("name"));
        name
    }

    /// A key that names something.
    pub fn mentioned(&self, key: &str, kind: Kind, severity: Severity) -> Option<String> {
        let name = self.string(key)?;
        let origin = self.origin(key);
        self.reader.names.borrow_mut().mention(kind, &name, severity, origin);
        Some(name)
    }

    /// A list of names.
    pub fn mentions(&self, key: &str, kind: Kind, severity: Severity) -> Vec<String> {
        let names = self.strings(key);
        let Some(Node::Array(items)) = self.entry(key).map(|entry| &entry.spot.node) else {
            return names;
        };
        for (name, item) in names.iter().zip(items) {
            let origin = self.document.content(key, item);
            self.reader.names.borrow_mut().mention(kind, name, severity, origin);
        }
        names
    }
}
