//! Real programs, started as a user starts them: `stead up`, `stead …`, `stead-runner`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(clippy::disallowed_methods, reason = "tests create ids and start tasks themselves")]

mod balancer;
mod builder;
mod callers;
mod certificates;
mod cluster;
mod customer;
mod database;
mod example;
mod git;
mod http;
mod launch;
mod messages;
mod moto;
mod namespace;
pub mod oracle;
mod outcome;
mod programs;
mod provider;
mod proxy;
mod published;
mod registry;
mod run;
mod runner;
mod server;
mod wait;
mod webhook;

pub use balancer::Balancer;
pub use builder::Builder;
pub use callers::Callers;
pub use certificates::Certificates;
pub use cluster::{Cluster, ClusterNamespace};
pub use customer::Customer;
pub use database::{Postgres, dump, execute_sql};
pub use example::{
    edge_api, edge_api_v2, helm_app, helm_app_v2, kubernetes_app, kubernetes_app_v2, notes_files,
    notes_files_v2,
};
pub use git::{GitRepository, GitServer};
pub use http::{HttpResponse, call};
pub use messages::agreed_message;
pub use moto::Moto;
pub use namespace::{Forward, Namespace, Sockets};
pub use outcome::{
    each_effect_once, ended, job_events, one_execution, position, run_with_logs, settled_position,
    step, succeeded,
};
pub use programs::{
    git_lfs_or_skip, helm_or_skip, in_ci, kubectl_or_skip, path_without, program, stdout_of,
    terraform_or_skip,
};
pub use provider::{for_customers, provider_config_for_customers_or_skip, provider_config_or_skip};
pub use proxy::{Fault, InterceptingProxy, RecordedCall};
pub use published::server_with_plugin;
pub use registry::{PushedImage, REGISTRY_PASSWORD, REGISTRY_USER, Registry};
pub use run::finish;
pub use runner::{Runner, shim_of};
pub use server::Server;
pub use wait::{until, until_some};
pub use webhook::{Admission, Webhook};
