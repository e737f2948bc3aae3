//! Pages of the dashboard: pure functions from responses of the Control API to HTML.
//!
//! A page contains no rule and reads nothing. The server mounts the pages (`api/src/ui`), and passes
//! the responses that its JSON handlers return.
pub mod assets;
mod components;
pub mod csv;
mod frame;
pub mod pages;

pub use frame::{Caller, Section};
pub use maud::Markup;

/// Content security policy of every page: scripts, styles and requests only from this server.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types stead";
