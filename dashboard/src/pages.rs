//! Pages, one module each. A page takes the responses that it shows.
mod app;
mod apps;
mod audit;
mod builds;
mod change;
mod diff;
mod find;
mod home;
mod install;
mod installs;
mod job;
mod log;
mod login;
mod new_install;
mod problem;
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
    audit::audit,
    builds::{build, builds},
    change::{ChangePage, change},
    diff::{DiffPage, UpgradePage, diff, upgrade},
    find::{FindPage, Found, find},
    home::{AppVersions, Attention, RunDay, home},
    install::{InstallPage, install, install_as_of},
    installs::installs,
    job::job,
    log::{LOG_LINES, LogPage, LogPhase, LogSearch},
    login::login,
    new_install::{EnrolmentPage, NewInstallPage, enrolment, new_install},
    problem::problem,
    run::{RunPage, run},
    runner::runner,
    runners::runners,
    runs::runs,
    settings::{NewToken, SettingsPage, SigningKey, new_token, settings},
    webhooks::{ConfiguredWebhook, WebhookPage, configured_webhook, webhook, webhooks},
};
