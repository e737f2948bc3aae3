//! Pages, one module each. A page takes the responses that it shows.
mod app;
mod apps;
mod audit;
mod home;
mod install;
mod installs;
mod job;
mod login;
mod problem;
mod run;
mod runners;
mod runs;
#[cfg(test)]
mod tests;

pub use self::{
    app::app,
    apps::apps,
    audit::audit,
    home::{Attention, home},
    install::{install, install_as_of},
    installs::installs,
    job::{LOG_LINES, LogPage, job},
    login::login,
    problem::problem,
    run::{RunPage, run},
    runners::runners,
    runs::runs,
};
