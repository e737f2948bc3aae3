//! The agent in an account: it polls, works and reports. Knows only the wire.
pub mod artifacts;
pub mod plugins;
