//! Options of the runner about registries, and the registries that they name.
//!
//! ```text
//! build  upstream registry or its mirror ──resolve──▶ tree ──copy──▶ server's or vendor's registry
//! sync   server's registry ─────────────────fetch──▶ tree ──copy──▶ registry of the install, or Layout
//! ```

mod settings;

pub use settings::ImageSettings;
pub(crate) use settings::{Mirror, RegistryChoice, parse_mirror, record_registry};
