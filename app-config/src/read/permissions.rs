//! `permissions.toml` or `permissions/*.toml`: the roles of the install's operations.
use super::{reader::Reader, section::Section};
use crate::model::{Role, RolePolicy, RolePurpose};

/// Tables of the one-file form.
const TABLES: [(&str, RolePurpose); 3] = [
    ("provision_role", RolePurpose::Provision),
    ("maintenance_role", RolePurpose::Maintenance),
    ("deprovision_role", RolePurpose::Deprovision),
];

pub fn read(reader: &Reader<'_>) -> Vec<Role> {
    let (single, many) = reader.either("permissions");
    let mut roles = Vec::new();
    if let Some(document) = single {
        let section = reader.section(&document);
        for (key, purpose) in TABLES {
            roles.extend(section.section(key).map(|inner| role(inner, purpose, key)));
        }
        for inner in section.sections("custom_roles") {
            roles.push(role(inner, RolePurpose::Custom, "custom_roles"));
        }
        section.finish();
    }
    for document in &many {
        let section = reader.section(document);
        let word = section.required("type");
        let purpose = match word.as_str() {
            "provision" => RolePurpose::Provision,
            "maintenance" => RolePurpose::Maintenance,
            "deprovision" => RolePurpose::Deprovision,
            "break_glass" | "break-glass" => RolePurpose::BreakGlass,
            "custom" | "" => RolePurpose::Custom,
            other => {
                let message = format!("there is no role type `{other}`");
                let remedy = "use provision, maintenance, deprovision or custom";
                section.warning("type", "unknown_role_type", message, remedy);
                RolePurpose::Custom
            }
        };
        roles.push(role(section, purpose, &word));
    }
    roles.sort_by(|a, b| (a.purpose, &a.file).cmp(&(b.purpose, &b.file)));
    roles
}

pub fn role(section: Section<'_>, purpose: RolePurpose, word: &str) -> Role {
    let name = section.text("name");
    if name.is_none() {
        section.required("name");
    }
    let mut policies = Vec::new();
    for inner in section.sections("policies") {
        policies.push(RolePolicy {
            managed_policy_name: inner.text("managed_policy_name"),
            name: inner.text("name"),
            contents: inner.content("contents"),
        });
        inner.ignore(&["gcp_predefined_role", "gcp_permissions", "azure_built_in_roles"]);
        inner.ignore(&["azure_actions"]);
        inner.finish();
    }
    let role = Role {
        purpose,
        word: word.to_string(),
        file: section.file().to_string(),
        name: name.unwrap_or_default(),
        description: section.text("description"),
        display_name: section.text("display_name"),
        permissions_boundary: section.content("permissions_boundary"),
        policies,
    };
    section.ignore(&["cloud_platform", "enabled_in_stack", "labels", "type"]);
    section.ignore(&["gcp_predefined_roles", "gcp_permissions", "azure_built_in_roles"]);
    section.finish();
    role
}
