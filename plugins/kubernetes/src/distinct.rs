//! Objects of the components that one process checks. In the preflight of a run, one process checks
//! all components on a cluster, so it finds an object of two components before the first change.

use std::{cell::RefCell, collections::BTreeMap};

use crate::{
    failure::{Failure, Outcome, listed},
    manifest::{self, Desired},
    object::ObjectRef,
    settings::Component,
};

/// Group, kind, namespace and name of an object.
type Key = (String, String, Option<String>, String);

/// Checked objects, each with its component, file and line.
#[derive(Debug, Default)]
pub struct Checked(RefCell<BTreeMap<Key, (String, String)>>);

impl Checked {
    /// Adds the objects of a component.
    ///
    /// # Errors
    /// Names every object that another component has.
    pub fn add(&self, component: &Component) -> Outcome<()> {
        let settings = &component.settings;
        let Some(text) = &settings.manifest else { return Ok(()) };
        let desired = manifest::parse(text, manifest::file_name(settings))?;
        let mut known = self.0.borrow_mut();
        let mut errors = vec![];
        for Desired { reference, place, .. } in desired {
            let namespace = reference.namespace.clone().or_else(|| settings.namespace.clone());
            let (group, kind, _, name) = reference.key();
            let key = (group.to_owned(), kind.to_owned(), namespace.clone(), name.to_owned());
            let own = (component.name.clone(), place.clone());
            let (other, at) = known.entry(key).or_insert(own);
            if *other != component.name {
                let object = ObjectRef { namespace, ..reference };
                errors.push(format!(
                    "{place}: {object} is also in the component {other} ({at}); keep it in one of \
                     them"
                ));
            }
        }
        match errors.is_empty() {
            true => Ok(()),
            false => Err(Failure::refused(listed("objects of two components", &errors))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(name: &str, namespace: &str) -> Component {
        let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n".to_owned();
        let settings = crate::settings::Settings {
            namespace: Some(namespace.to_owned()),
            manifest: Some(manifest),
            ..Default::default()
        };
        let dir = std::path::PathBuf::new();
        Component {
            install: "ins_1".into(),
            name: name.into(),
            operation: schemas::plugin::Operation::Apply,
            settings,
            source_dir: dir.clone(),
            work_dir: dir,
        }
    }

    #[test]
    fn object_of_two_components_is_named_with_both_places() {
        let checked = Checked::default();
        checked.add(&component("api", "shop")).unwrap();
        // The runner checks a component again when it plans it.
        checked.add(&component("api", "shop")).unwrap();
        checked.add(&component("web", "other")).unwrap();
        let message = checked.add(&component("web", "shop")).unwrap_err().message;
        let part = "manifest:1: ConfigMap shop/web is also in the component api (manifest:1)";
        assert!(message.contains(part), "{message}");
    }
}
