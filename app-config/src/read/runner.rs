//! `runner.toml`: what the runner in the account is given.
use super::reader::Reader;
use crate::model::Runner;

pub fn read(reader: &Reader<'_>) -> Option<Runner> {
    let document = reader.document("runner.toml")?;
    let section = reader.section(&document);
    let runner = Runner {
        at: section.place(),
        runner_type: section.required("runner_type"),
        helm_driver: section.string("helm_driver"),
        env_vars: section.texts("env_vars"),
        init_script_url: section.string("init_script_url"),
    };
    section.ignore(&["instance_type", "labels"]);
    section.finish();
    Some(runner)
}
