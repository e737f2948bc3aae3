//! Sensitive values in manifests. The state of templates contains a mark for each, and the manifest
//! a reference in place of each mark in a rendered text.
use std::collections::BTreeMap;

use app_config::{
    AppConfig,
    template::secret::{PREFIX_KEY, mark, mark_default, take_marks},
    tree::SANDBOX,
};
use domain::{
    ids::ValueId,
    secret::{Consumer, of_placeholder},
};
use schemas::secret::{MAX_REFERENCES, SecretReference, input_name, output_name};
use serde_json::Value;

use super::ManifestParts;
use crate::{ids, sensitive::KnownValues};

/// Sensitive values of an install, for the rendering of one step.
pub(super) struct SensitiveValues {
    /// Random prefix of the marks. No other text contains it.
    prefix: String,
    known: KnownValues,
    /// Names of the values that the state refers to.
    names: BTreeMap<ValueId, String>,
}

impl SensitiveValues {
    /// Replaces the sensitive values in the state of templates by marks.
    pub(super) fn mark(nuon: &mut Value, config: &AppConfig, known: KnownValues) -> Self {
        let prefix = format!("sensitive-{}-{}-", ids::new_ulid(), ids::new_ulid());
        let mut values = SensitiveValues { prefix, known, names: BTreeMap::new() };
        let state = &mut nuon["nuon"];
        for input in config.install_values().filter(|input| input.sensitive) {
            let paths: &[&str] = match config.secret_input(&input.name) {
                Some(_) => &["/install/secrets"],
                None => &["/inputs/inputs", "/install/inputs"],
            };
            let text = state.pointer(paths[0]).and_then(|inputs| inputs[&input.name].as_str());
            let text = text.unwrap_or_default();
            let marked = match of_placeholder(text) {
                Some(id) => values.marked(id, input_name(&input.name)),
                // Without a value there is nothing to protect.
                None if text.is_empty() => continue,
                None => mark_default(&values.prefix, text),
            };
            for path in paths {
                if let Some(inputs) = state.pointer_mut(path) {
                    inputs[&input.name] = marked.clone().into();
                }
            }
        }
        let components = config.components.iter().map(|component| component.name.as_str());
        let components = components.map(|name| (format!("/components/{}", escaped(name)), name));
        let sandbox = ["/sandbox", "/install/sandbox"].map(|path| (path.to_owned(), SANDBOX));
        for (path, name) in components.chain(sandbox) {
            let outputs = state.pointer_mut(&format!("{path}/outputs"));
            let outputs = outputs.and_then(Value::as_object_mut).into_iter().flatten();
            for (output, value) in outputs {
                if let Some(id) = value.as_str().and_then(of_placeholder) {
                    *value = values.marked(id, output_name(name, output)).into();
                }
            }
        }
        nuon["stead"] = nuon["nuon"].clone();
        nuon[PREFIX_KEY] = values.prefix.clone().into();
        values
    }

    fn marked(&mut self, id: ValueId, name: String) -> String {
        let json = self.known.get(&id).is_some_and(|value| value.json);
        self.names.insert(id, name);
        mark(&self.prefix, id, json)
    }

    /// Replaces the marks in a manifest by references.
    ///
    /// # Errors
    /// If a value was erased, is not permitted for this job, or is in a text that Stead itself
    /// evaluates.
    pub(super) fn references(
        &self,
        parts: &mut ManifestParts,
        job: &Consumer,
    ) -> Result<Vec<SecretReference>, String> {
        let mut found = vec![];
        self.walk(&mut parts.inputs, "/inputs", &mut found)?;
        for (name, value) in &mut parts.env {
            self.replace(value, &format!("/env/{}", escaped(name)), &mut found)?;
        }
        if parts.role.as_ref().is_some_and(|role| role.contains(&self.prefix)) {
            return Err(
                "the name of a role reads a sensitive value, which the server does not know; use \
                 an input that is not sensitive"
                    .into(),
            );
        }
        if found.len() > MAX_REFERENCES {
            return Err(format!(
                "the manifest inserts more than {MAX_REFERENCES} sensitive values"
            ));
        }
        found.iter().try_for_each(|reference| self.check(reference.id, job))?;
        found.sort_by(|a, b| (&a.pointer, a.start).cmp(&(&b.pointer, b.start)));
        Ok(found)
    }

    fn check(&self, id: ValueId, job: &Consumer) -> Result<(), String> {
        let name = self.names.get(&id).map_or("", String::as_str);
        let again = match name.strip_prefix("inputs.") {
            Some(input) => format!(
                "set it again: `stead installs set-inputs INSTALL --secret {input}=FILE`, or the customer \
                 with `stead-runner secret set {input}`"
            ),
            None => "deploy the component that has this output again".to_owned(),
        };
        let Consumer { component, job_kind } = job;
        match self.known.get(&id) {
            None => {
                Err(format!("the sensitive value {name} ({id}) was erased or replaced; {again}"))
            }
            Some(known) if known.name != name => Err(format!(
                "the sensitive value {id} belongs to {}, not to {name}; {again}",
                known.name
            )),
            Some(known) if !Consumer::any_permits(&known.consumers, component, job_kind) => {
                Err(format!(
                    "the sensitive value {name} is encrypted for other jobs than {job_kind} of {component}; \
                     {again}"
                ))
            }
            Some(_) => Ok(()),
        }
    }

    fn walk(
        &self,
        value: &mut Value,
        pointer: &str,
        found: &mut Vec<SecretReference>,
    ) -> Result<(), String> {
        match value {
            Value::String(text) => self.replace(text, pointer, found),
            Value::Array(items) => items
                .iter_mut()
                .enumerate()
                .try_for_each(|(at, item)| self.walk(item, &format!("{pointer}/{at}"), found)),
            Value::Object(entries) => {
                if entries.keys().any(|key| key.contains(&self.prefix)) {
                    return Err("a key contains a sensitive value; use it only in values".into());
                }
                entries.iter_mut().try_for_each(|(key, item)| {
                    self.walk(item, &format!("{pointer}/{}", escaped(key)), found)
                })
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    fn replace(
        &self,
        text: &mut String,
        pointer: &str,
        found: &mut Vec<SecretReference>,
    ) -> Result<(), String> {
        if !text.contains(&self.prefix) {
            return Ok(());
        }
        let (replaced, references) = take_marks(&self.prefix, text)?;
        *text = replaced;
        found.extend(references.into_iter().map(|one| SecretReference {
            pointer: pointer.to_owned(),
            start: one.start as u64,
            end: one.end as u64,
            id: one.id,
            through: one.through,
        }));
        Ok(())
    }
}

/// Escapes a key for an RFC 6901 pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests;
