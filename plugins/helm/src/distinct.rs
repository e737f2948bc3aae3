//! Releases of the components that one process checks. In the preflight of a run, one process checks
//! all components on a cluster, so it finds a release of two components before the first change.

use std::{cell::RefCell, collections::BTreeMap};

use stead_plugin_kubernetes::failure::{Failure, Outcome};

use crate::settings::ReleaseRef;

/// Components by namespace and name of their releases.
#[derive(Debug, Default)]
pub struct Checked(RefCell<BTreeMap<(String, String), String>>);

impl Checked {
    /// Adds the release of a component.
    ///
    /// # Errors
    /// Another component has the release.
    pub fn add(&self, component: &str, release: &ReleaseRef) -> Outcome<()> {
        let mut known = self.0.borrow_mut();
        // The storage driver does not distinguish releases: their objects have the same marks.
        let key = (release.namespace.clone(), release.name.clone());
        let other = known.entry(key).or_insert_with(|| component.to_owned());
        match other == component {
            true => Ok(()),
            false => Err(Failure::refused(format!(
                "{release} is also the release of the component {other}; give one of the two \
                 another chart_name or namespace"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::StorageDriver;

    #[test]
    fn release_belongs_to_one_component() {
        let release = |namespace: &str, driver| {
            let (namespace, name) = (namespace.to_owned(), "web".to_owned());
            ReleaseRef { namespace, name, driver }
        };
        let checked = Checked::default();
        checked.add("api", &release("shop", StorageDriver::Secret)).unwrap();
        // The runner checks a component again when it plans it.
        checked.add("api", &release("shop", StorageDriver::Secret)).unwrap();
        checked.add("web", &release("other", StorageDriver::Secret)).unwrap();
        let error = checked.add("web", &release("shop", StorageDriver::Configmap)).unwrap_err();
        let part = "HelmRelease shop/web is also the release of the component api";
        assert!(error.message.contains(part), "{}", error.message);
    }
}
