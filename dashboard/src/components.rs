//! Parts that several pages share.
mod ansi;
mod badge;
pub(crate) mod diff;
mod graph;
mod plan;
mod text;

pub(crate) use self::{
    ansi::output,
    badge::{Tone, badge, tone},
    graph::{Node, graph},
    plan::{changes, counts, details, plan_details},
    text::{
        actor, command, command_line, count, empty, encoded, exact, id, kind, run_link, time, value,
    },
};
