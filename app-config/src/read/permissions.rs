//! `permissions.toml` or `permissions/*.toml`: roles of the install's operations.
use super::{names::Kind, reader::Reader, section::Section};
use crate::model::{CloudGrants, Role, RolePolicy, RolePurpose};

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
                let message = format!("unknown role type `{other}`");
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
    section.declared(Kind::Role);
    let name = section.text("name");
    let mut policies = Vec::new();
    for inner in section.sections("policies") {
        policies.push(RolePolicy {
            at: inner.place(),
            managed_policy_name: inner.text("managed_policy_name"),
            name: inner.text("name"),
            contents: inner.content("contents"),
            clouds: clouds(&inner),
        });
        inner.finish();
    }
    let role = Role {
        at: section.place(),
        purpose,
        word: word.to_string(),
        file: section.file().to_string(),
        name: name.unwrap_or_default(),
        description: section.text("description"),
        display_name: section.text("display_name"),
        permissions_boundary: section.content("permissions_boundary"),
        cloud_platform: section.one_of("cloud_platform", "cloud", &["aws", "azure", "gcp"]),
        enabled_in_stack: section.flag("enabled_in_stack"),
        clouds: clouds(&section),
        policies,
    };
    section.ignore(&["labels", "type"]);
    section.finish();
    role
}

/// Grants on clouds other than AWS. `gcp_predefined_role` is the form for a single role.
fn clouds(section: &Section<'_>) -> CloudGrants {
    let mut gcp_predefined_roles: Vec<String> =
        section.string("gcp_predefined_role").into_iter().collect();
    gcp_predefined_roles.extend(section.strings("gcp_predefined_roles"));
    CloudGrants {
        gcp_predefined_roles,
        gcp_permissions: section.strings("gcp_permissions"),
        azure_built_in_roles: section.strings("azure_built_in_roles"),
        azure_actions: section.strings("azure_actions"),
    }
}
