//! Plugin of the component type `kubernetes_manifest`: a component is a list of Kubernetes objects,
//! which the plugin applies with server-side apply. The plugin of Helm charts shares the access to
//! the cluster, the inventory and the messages.
//!
//! | module | content |
//! |---|---|
//! | `manifest`, `kustomize`, `distinct` | desired objects |
//! | `cluster`, `kubeconfig`, `kinds` | access to the cluster |
//! | `order`, `decide`, `fields`, `managed`, `readiness` | rules, without I/O |
//! | `plan`, `resolve`, `evaluate`, `obsolete`, `content`, `plan_file` | a plan, from dry runs of each object |
//! | `apply`, `effect`, `removal`, `wait`, `pods` | execution of exactly that plan |
//! | `inventory` | state: one Secret per component |
//! | `serve`, `calls`, `preflight`, `build`, `report` | messages of the protocol |

mod apply;
mod build;
pub mod calls;
pub mod cluster;
pub mod content;
pub mod decide;
pub mod details;
mod distinct;
mod effect;
pub mod evaluate;
pub mod failure;
pub mod fields;
pub mod inventory;
pub mod kinds;
pub mod kubeconfig;
mod kustomize;
pub mod managed;
pub mod manifest;
pub mod object;
mod obsolete;
pub mod order;
pub mod outputs;
mod plan;
pub mod plan_file;
pub mod pods;
mod preflight;
pub mod readiness;
pub mod rejection;
pub mod removal;
pub mod report;
mod resolve;
pub mod serve;
pub mod settings;
pub mod wait;
