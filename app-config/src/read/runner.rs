//! `runner.toml`: settings of the runner in the customer's account.
use super::reader::Reader;
use crate::model::Runner;

const TYPES: [&str; 9] =
    ["aws", "aws-ecs", "aws-eks", "azure", "azure-acs", "azure-aks", "gcp", "gcp-gke", "local"];
const HELM_DRIVERS: [&str; 4] = ["configmap", "nuon", "secret", "secrets"];

pub fn read(reader: &Reader<'_>) -> Option<Runner> {
    let document = reader.document("runner.toml")?;
    let section = reader.section(&document);
    let runner = Runner {
        at: section.place(),
        runner_type: section.required("runner_type"),
        type_at: section.origin("runner_type"),
        helm_driver: section.one_of("helm_driver", "Helm driver", &HELM_DRIVERS),
        env_vars: section.variables("env_vars"),
        init_script_url: section.string("init_script_url"),
    };
    section.one_of("runner_type", "runner type", &TYPES);
    section.ignore(&["instance_type", "labels"]);
    section.finish();
    Some(runner)
}
