//! `break_glass.toml` or `break_glass/*.toml`: roles that the customer enables in an emergency.
use super::{permissions::role, reader::Reader};
use crate::model::{Role, RolePurpose};

pub fn read(reader: &Reader<'_>) -> Vec<Role> {
    let (single, many) = reader.either("break_glass");
    let mut roles = Vec::new();
    if let Some(document) = single {
        let section = reader.section(&document);
        let inner = section.sections("role");
        roles.extend(
            inner.into_iter().map(|inner| role(inner, RolePurpose::BreakGlass, "break_glass")),
        );
        section.finish();
    }
    let many = many.iter().map(|document| reader.section(document));
    roles.extend(many.map(|section| role(section, RolePurpose::BreakGlass, "break_glass")));
    roles
}
