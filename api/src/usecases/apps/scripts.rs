//! What the scripts of an app need to be there.
use schemas::problem::FieldProblem;

use crate::{compose::config::Config, problem::Problem};

/// A bundle has no scripts of repositories: such a step would end with "not found" in an empty directory.
pub fn are_here(config: &Config) -> Result<(), Problem> {
    let mut errors = vec![];
    for action in &config.app.actions {
        for step in action.steps.iter().filter(|step| step.source.is_some()) {
            let (action_name, step_name) = (&action.name, &step.name);
            errors.push(FieldProblem {
                field: None,
                file: Some(action.file.clone()),
                line: None,
                column: None,
                message: format!(
                    "the step {step_name:?} of the action {action_name:?} takes its script from a repository, \
                     which comes with a later release"
                ),
                remedy: Some("write the script in the step's inline_contents".into()),
            });
        }
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Problem::invalid("the app directory has errors; nothing was changed", errors)),
    }
}

#[cfg(test)]
mod tests {
    use app_config::{File, Tree};

    use super::*;

    fn config(step: &str) -> Config {
        let action = format!("name = \"backup\"\n[[steps]]\nname = \"save\"\n{step}\n");
        let mut tree = Tree::default();
        for (path, text) in
            [("app/metadata.toml", "version = \"v2\"\n"), ("app/actions/backup.toml", &action)]
        {
            let file = File { bytes: text.as_bytes().to_vec(), executable: false };
            tree.insert(path, file).unwrap();
        }
        crate::compose::config::read(&tree.encode().unwrap()).unwrap()
    }

    #[test]
    fn a_script_of_a_repository_is_refused_with_its_place_and_the_remedy() {
        assert!(are_here(&config("inline_contents = \"echo here\"")).is_ok());
        let there =
            "command = \"./save.sh\"\n[steps.public_repo]\nrepo = \"a/b\"\ndirectory = \".\"";
        let refused = are_here(&config(there)).unwrap_err();
        let [error] = &refused.errors[..] else { panic!("{refused:?}") };
        assert_eq!(error.file.as_deref(), Some("actions/backup.toml"));
        assert!(error.message.contains("\"save\"") && error.message.contains("\"backup\""));
        assert!(error.remedy.as_ref().is_some_and(|remedy| remedy.contains("inline_contents")));
    }
}
