//! Names that a directory declares and mentions. They are collected while files are read, and
//! compared afterwards.
use std::collections::BTreeMap;

use super::section::Section;
use crate::{
    diagnostic::{Diagnostic, Severity, nearest},
    document::Node,
    text::Origin,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Action,
    Branch,
    Component,
    Context,
    Group,
    Input,
    Install,
    NestedStack,
    Role,
    Runbook,
    Secret,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Action => "action",
            Kind::Branch => "branch",
            Kind::Component => "component",
            Kind::Context => "kubernetes context",
            Kind::Group => "input group",
            Kind::Input => "input",
            Kind::Install => "install",
            Kind::NestedStack => "nested stack",
            Kind::Role => "role",
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
            Kind::Role => "unknown_role",
            Kind::Secret => "unknown_secret",
            Kind::Branch | Kind::Context | Kind::Install | Kind::NestedStack | Kind::Runbook => {
                "bad_value"
            }
        }
    }

    /// Severity of a duplicate name: an error for kinds that must be unique, and a warning for the
    /// others.
    fn clash(self) -> Severity {
        match self {
            Kind::Action | Kind::Component | Kind::Context | Kind::Group | Kind::Input => {
                Severity::Error
            }
            Kind::Install | Kind::Runbook | Kind::Secret => Severity::Error,
            Kind::Branch | Kind::NestedStack | Kind::Role => Severity::Warning,
        }
    }
}

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

    /// Location of a name's declaration.
    pub fn place(&self, kind: Kind, name: &str) -> Option<&Origin> {
        let mut all = self.declared.iter();
        all.find(|(of, declared, _)| *of == kind && declared == name).map(|(_, _, origin)| origin)
    }

    /// Remedy for an unknown name: the most similar declared name, or the declared names.
    pub fn remedy(&self, kind: Kind, name: &str) -> String {
        let known: Vec<&str> = self
            .declared
            .iter()
            .filter(|(of, _, _)| *of == kind)
            .map(|(_, name, _)| name.as_str())
            .collect();
        match nearest(name, known.iter().copied()) {
            Some(suggestion) => format!("did you mean `{suggestion}`?"),
            None if known.is_empty() => {
                format!("declare the {0}; the app has no {0} yet", kind.word())
            }
            None if known.len() <= 12 => format!("use one of: {}", known.join(", ")),
            None => format!("correct the name, or declare the {}", kind.word()),
        }
    }

    /// True if the name may be a declared role. A declared `{{ .nuon.install.id }}-x` also matches
    /// `x`. Other templates and ARNs are known only in the account, so they count as declared.
    fn may_be_role(&self, name: &str) -> bool {
        let plain = role_name(name);
        let declared = self.declared.iter().filter(|(of, _, _)| *of == Kind::Role);
        let mut names = declared.map(|(_, name, _)| role_name(name));
        plain.contains("{{")
            || plain.starts_with("arn:")
            || names.any(|role| role == plain || role.strip_prefix("INSTALL-") == Some(&*plain))
    }

    /// Reports duplicate declarations and unknown names.
    pub fn check(&self) -> Vec<Diagnostic> {
        let mut findings = Vec::new();
        let mut taken: BTreeMap<(Kind, &str), &Origin> = BTreeMap::new();
        for (kind, name, origin) in &self.declared {
            let Some(other) = taken.insert((*kind, name), origin) else { continue };
            findings.push(duplicate(kind.clash(), kind.word(), name, (origin, other)));
        }
        for Mention { kind, name, severity, origin } in &self.mentioned {
            if taken.contains_key(&(*kind, name)) || (*kind == Kind::Role && self.may_be_role(name))
            {
                continue;
            }
            let message = format!("unknown {} `{name}`", kind.word());
            let remedy = self.remedy(*kind, name);
            let finding = Diagnostic::new(*severity, kind.unknown(), message, remedy);
            findings.push(finding.at(&origin.file, origin.place(name.chars().count())));
        }
        findings
    }
}

/// Replaces each spelling of the install's id in a role's name with the placeholder `INSTALL`.
fn role_name(name: &str) -> String {
    let mut plain = String::new();
    let mut rest = name;
    while let Some((before, after_open)) = rest.split_once("{{") {
        let (inside, after) = after_open.split_once("}}").unwrap_or((after_open, ""));
        plain.push_str(before);
        match inside.trim_matches(['-', ' ', '\t']) {
            ".nuon.install.id" | ".stead.install.id" => plain.push_str("INSTALL"),
            other => plain.push_str(&format!("{{{{{other}}}}}")),
        }
        rest = after;
    }
    plain + rest
}

fn duplicate(
    severity: Severity,
    word: &str,
    name: &str,
    (origin, other): (&Origin, &Origin),
) -> Diagnostic {
    let (file, line) = (&other.file, other.line);
    let message = format!("duplicate {word} `{name}`: also declared in {file}:{line}");
    let finding = Diagnostic::new(severity, "duplicate_name", message, "rename one of them");
    finding.at(&origin.file, origin.place(name.chars().count()))
}

impl Section<'_> {
    /// Steps of this table. Reports duplicate names, because outputs of equally named steps could
    /// not be distinguished.
    pub fn steps(&self) -> Vec<Self> {
        let steps = self.sections("steps");
        let mut taken: BTreeMap<String, Origin> = BTreeMap::new();
        for step in &steps {
            let Some(name) = step.string("name") else { continue };
            let origin = step.origin("name");
            if let Some(other) = taken.insert(name.clone(), origin.clone()) {
                self.reader.report(duplicate(Severity::Warning, "step", &name, (&origin, &other)));
            }
        }
        steps
    }

    /// Reads the required name of this table and records it as declared.
    pub fn declared(&self, kind: Kind) -> String {
        let name = self.required("name");
        self.reader.names.borrow_mut().declare(kind, &name, self.origin("name"));
        name
    }

    /// Reads a key that names another part, and records the name as mentioned.
    pub fn mentioned(&self, key: &str, kind: Kind, severity: Severity) -> Option<String> {
        let name = self.string(key)?;
        let origin = self.origin(key);
        self.reader.names.borrow_mut().mention(kind, &name, severity, origin);
        Some(name)
    }

    /// Reads a list of names, and records each one as mentioned.
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
