//! One change outside Stead.
use std::{fs, path::Path, process::Command};

use tests::{Runner, stdout_of};

use crate::{
    journey::Journey,
    session::{Failure, Outcome, short},
};

/// Deletes an object of the cluster that a component owns. Without one, removes a resource from the
/// Terraform state of a component, because stand-ins create nothing outside of it. Returns what
/// changed, or none for an app without components that can drift.
pub(crate) fn inject(journey: &Journey<'_>, runner: &Runner) -> Outcome<Option<String>> {
    let kinds = ["terraform_module", "helm_chart", "kubernetes_manifest"];
    if !journey.app.components.iter().any(|one| kinds.contains(&one.kind.as_str())) {
        return Ok(None);
    }
    if let Some(cluster) = &journey.cluster
        && let Some(object) = cluster.delete_one_object()?
    {
        return Ok(Some(format!("{object} was deleted")));
    }
    let states = runner.data().join("state");
    let states = fs::read_dir(&states).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut states: Vec<_> = states.collect();
    states.sort();
    // A deploy does not plan the sandbox.
    for dir in states.iter().filter(|dir| !dir.ends_with("sandbox")) {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let pulled = runner.local(&["state", "pull", &name]).output().unwrap();
        // Components of other plugins have no Terraform state.
        if !pulled.status.success() {
            continue;
        }
        let copy = tempfile::tempdir().unwrap();
        let state = copy.path().join("terraform.tfstate");
        fs::write(&state, pulled.stdout).unwrap();
        if let Some(address) = first_resource(&state)? {
            journey.rules.note("drift in a Terraform state");
            terraform(&state, &["rm", &address])?;
            let file = state.to_str().unwrap();
            let restore = ["state", "resolve", &name, "--restore", file, "--reason", "drift"];
            stdout_of(&mut runner.local(&restore));
            return Ok(Some(format!("{address} was removed from {}", dir.display())));
        }
    }
    Err(Failure::new(format!("no object and no resource can be changed: {states:?}")))
}

/// Returns the address of the first resource in a state, as Terraform prints it.
fn first_resource(state: &Path) -> Outcome<Option<String>> {
    let listed = terraform(state, &["list"])?;
    Ok(listed.lines().find(|line| !is_data(line)).map(str::to_owned))
}

fn terraform(state: &Path, args: &[&str]) -> Outcome<String> {
    let (verb, rest) = args.split_first().unwrap();
    let mut command = Command::new("terraform");
    command.arg("state").arg(verb).arg(format!("-state={}", state.display())).args(rest);
    let output = command.current_dir(state.parent().unwrap()).output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(Failure::new(short(&String::from_utf8_lossy(&output.stderr)))),
    }
}

fn is_data(address: &str) -> bool {
    address.starts_with("data.") || address.contains(".data.")
}
