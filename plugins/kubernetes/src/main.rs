//! `stead-plugin-kubernetes_manifest`: the plugin of the component type `kubernetes_manifest`.
//!
//! A component is a list of Kubernetes objects. The plugin applies them with server-side apply.
//!
//! | module | content |
//! |---|---|
//! | `manifest`, `kustomize` | desired objects |
//! | `cluster`, `kubeconfig`, `kinds` | access to the cluster |
//! | `order`, `decide`, `fields`, `managed`, `readiness` | rules, without I/O |
//! | `plan`, `resolve`, `evaluate`, `obsolete`, `content`, `plan_file` | a plan, from dry runs of each object |
//! | `apply`, `effect`, `removal`, `wait` | execution of exactly that plan |
//! | `inventory` | state: one Secret per component |

mod apply;
mod cluster;
mod content;
mod decide;
mod effect;
mod evaluate;
mod failure;
mod fields;
mod inventory;
mod kinds;
mod kubeconfig;
mod kustomize;
mod managed;
mod manifest;
mod object;
mod obsolete;
mod order;
mod outputs;
mod plan;
mod plan_file;
mod readiness;
mod rejection;
mod removal;
mod report;
mod resolve;
mod serve;
mod settings;
mod wait;

fn main() -> std::io::Result<()> {
    // The HTTP client uses this crypto provider.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve::serve())
}
