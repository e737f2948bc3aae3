//! Environment variables of jobs. A runner refuses a job that sets a reserved variable, so such a
//! variable is an error in the config.
use std::collections::BTreeMap;

use domain::environment;

use super::section::Section;
use crate::text::Text;

impl Section<'_> {
    /// Reads a table of environment variables, and reports reserved names.
    pub fn variables(&self, key: &str) -> BTreeMap<String, Text> {
        let Some(section) = self.section(key) else { return BTreeMap::new() };
        for name in section.table.keys() {
            if let Some(why) = environment::reserved(name) {
                let message = format!("a job cannot set the variable `{name}`: {why}");
                let remedy = "remove it, or use another name";
                section.error(name, "reserved_variable", message, remedy);
            }
        }
        section.scalars()
    }
}
