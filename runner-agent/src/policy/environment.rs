//! Variables that a manifest sets.
use domain::environment::SERVER_VARIABLES;
use schemas::manifest::Manifest;
use serde_json::Value;

/// Returns the names of all variables that the vendor sets, for the job and for the steps of an
/// action.
pub(super) fn of(manifest: &Manifest) -> impl Iterator<Item = &str> {
    let steps = manifest.inputs.get("steps").and_then(Value::as_array).into_iter().flatten();
    let of_steps = steps.filter_map(|step| step.get("env_vars")?.as_object());
    let of_steps = of_steps.flat_map(|vars| vars.keys().map(String::as_str));
    let all = manifest.env.keys().map(String::as_str).chain(of_steps);
    all.filter(|name| !SERVER_VARIABLES.contains(name))
}
