//! Access to the cluster, for the plugin and for Helm, with the same kubeconfig.

use stead_plugin_kubernetes::{
    cluster::Cluster,
    failure::{Failure, Outcome},
    kubeconfig,
};

use tokio_util::sync::CancellationToken;

use crate::{helm::Helm, settings::Component};

/// Field manager of Helm.
pub const MANAGER: &str = "helm";

/// Cluster and Helm of one job.
pub struct Access {
    pub cluster: Cluster,
    pub helm: Helm,
}

impl Access {
    /// Creates a client and the directories of Helm. Makes no request.
    pub async fn open(component: &Component) -> Outcome<Self> {
        let release = component.settings.release()?;
        let cluster = Cluster::connect(component).await?;
        // Helm reads the content that was checked, not the files that `KUBECONFIG` names.
        let config = kubeconfig::load()?;
        let text = serde_json::to_vec(&config)
            .map_err(|e| Failure::failed(format!("cannot serialize the kubeconfig: {e}")))?;
        let helm = Helm::new(&component.work_dir, release.driver)?.with_kubeconfig(&text)?;
        Ok(Access { cluster, helm })
    }

    /// Stops retries of requests at a cancel.
    pub fn until(self, stop: &CancellationToken) -> Self {
        Access { cluster: self.cluster.until(stop), ..self }
    }

    /// Returns the cluster with the field manager of Helm, for dry runs of its changes. Helm without
    /// server-side apply has no conflicts.
    pub fn helm_manager(&self, is_server_side: bool) -> Cluster {
        self.cluster.for_dry_runs(MANAGER, !is_server_side)
    }
}
