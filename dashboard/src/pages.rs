//! Pages, one module each. A page takes the responses that it shows.
mod app;
mod apps;
mod audit;
mod change;
mod diff;
mod home;
mod install;
mod installs;
mod job;
mod login;
mod problem;
mod run;
mod runner;
mod runners;
mod runs;
#[cfg(test)]
mod tests;
mod together;

pub use self::{
    app::app,
    apps::apps,
    audit::audit,
    change::{ChangePage, change},
    diff::{DiffPage, UpgradePage, diff, upgrade},
    home::{Attention, home},
    install::{InstallPage, install, install_as_of},
    installs::installs,
    job::{LOG_LINES, LogPage, job},
    login::login,
    problem::problem,
    run::{RunPage, run},
    runner::runner,
    runners::runners,
    runs::runs,
};
