//! JSON Schema of each file kind, for editors: `#:schema URL` on the first line of a file.

macro_rules! schemas {
    ($($kind:literal,)*) => {
        /// All file kinds with their schemas.
        pub const SCHEMAS: &[(&str, &str)] =
            &[$(($kind, include_str!(concat!("../../schemas/app-config/", $kind, ".json"))),)*];
    };
}

schemas! {
    "action",
    "branch",
    "break-glass",
    "component",
    "input",
    "input-group",
    "inputs",
    "install",
    "installer",
    "installs",
    "kubernetes-contexts",
    "metadata",
    "operation-roles",
    "permissions",
    "policies",
    "policy",
    "role",
    "runbook",
    "runner",
    "sandbox",
    "secret",
    "secrets",
    "stack",
}

/// JSON Schema of a file kind (`component`, `input-group`), as stored in `schemas/app-config`.
pub fn schema(kind: &str) -> Option<&'static str> {
    SCHEMAS.iter().find(|(known, _)| *known == kind).map(|(_, text)| *text)
}
