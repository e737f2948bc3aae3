//! The JSON Schema of every file kind, for editors: `#:schema URL` in the first line of a file.

macro_rules! schemas {
    ($($kind:literal,)*) => {
        /// Every kind with its schema.
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

/// The schema of a kind of file (`component`, `input-group`), as it is kept in `schemas/app-config`.
pub fn schema(kind: &str) -> Option<&'static str> {
    SCHEMAS.iter().find(|(known, _)| *known == kind).map(|(_, text)| *text)
}
