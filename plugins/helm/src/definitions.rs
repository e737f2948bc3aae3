//! CustomResourceDefinitions in `crds/` of a chart, which Helm creates but never updates or deletes.

use stead_plugin_kubernetes::{
    cluster::Cluster, failure::Outcome, inventory::Inventory, kinds::Kinds, manifest::Desired,
    object::ObjectRef,
};

use crate::objects;

/// Definitions of a chart.
#[derive(Default)]
pub struct Definitions {
    /// Definitions that the component created or creates.
    pub all: Vec<ObjectRef>,
    /// Definitions that the cluster does not have.
    pub new: Vec<Desired>,
}

impl Definitions {
    pub async fn load(
        cluster: &Cluster,
        crds: &[String],
        inventory: &Inventory,
    ) -> Outcome<Definitions> {
        let text: String = crds.iter().map(|crd| format!("---\n{crd}\n")).collect();
        let mut found = Definitions::default();
        let desired = objects::parse(&text)?;
        let versions = desired.iter().map(|one| one.reference.api_version.as_str());
        let kinds = Kinds::load(cluster, versions).await?;
        for one in desired {
            let live = match kinds.get(&one.reference) {
                Some(kind) => cluster.live(kind, &one.reference).await?,
                None => None,
            };
            match live {
                None => {
                    found.all.push(one.reference.clone());
                    found.new.push(one);
                }
                // Only a definition of this component is named at its teardown.
                Some(_) if inventory.entry(&one.reference).is_none() => {}
                Some(_) => found.all.push(one.reference),
            }
        }
        Ok(found)
    }
}
