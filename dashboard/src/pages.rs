//! Pages, one module each. A page takes the responses that it shows.
mod app;
mod apps;
mod as_of;
mod attempts;
mod audit;
mod builds;
mod bulk;
mod catalog;
mod change;
mod dependencies;
mod diff;
mod find;
mod history;
mod home;
mod install;
mod installs;
mod job;
mod log;
mod login;
mod new_install;
mod plugins;
mod problem;
mod proofs;
mod run;
mod runner;
mod runners;
mod runs;
mod settings;
#[cfg(test)]
mod tests;
mod together;
mod webhooks;

pub use self::{
    app::{AppPage, app},
    apps::apps,
    as_of::{EarlierPage, Subject, earlier},
    attempts::{AttemptsPage, attempts},
    audit::{AuditPage, audit},
    builds::{build, builds},
    bulk::{
        BulkItem, BulkPage, BulkResult, BulkVerb, PreviewPage, ResultsPage, bulk, bulk_preview,
        bulk_results,
    },
    catalog::catalog,
    change::{ChangePage, change},
    diff::{DiffPage, UpgradePage, diff, upgrade},
    find::{FindPage, Found, find},
    history::{HistoryPage, history},
    home::{AppVersions, Attention, RunDay, home},
    install::{InstallPage, install, install_as_of},
    installs::installs,
    job::job,
    log::{LOG_LINES, LogPage, LogPhase, LogSearch},
    login::login,
    new_install::{EnrolmentPage, NewInstallPage, build_enrolment, enrolment, new_install},
    plugins::{plugin, plugins},
    problem::problem,
    proofs::{ProofsPage, Verification, proofs},
    run::{RunPage, run},
    runner::{RunnerPage, runner},
    runners::{RunnersPage, runners},
    runs::runs,
    settings::{NewToken, SettingsPage, SigningKey, new_token, settings},
    webhooks::{ConfiguredWebhook, WebhookPage, configured_webhook, webhook, webhooks},
};
