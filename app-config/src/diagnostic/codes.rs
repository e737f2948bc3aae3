//! The stable codes of findings. Programs and suppressions name them, so none is ever reused.

/// Each code, and what it means in one sentence.
pub const CODES: &[(&str, &str)] = &[
    ("bad_cron", "A schedule is no cron expression."),
    ("bad_default", "A default is no value of its input's type."),
    ("bad_duration", "A duration is not written as the format has it, or is too long."),
    ("bad_module", "A file of a local module is no HCL or JSON."),
    ("bad_name", "A name cannot be used as a path or by a template."),
    ("bad_timeout", "The timeout of an action is no duration up to 60m."),
    ("bad_value", "A value is none of those that its key takes."),
    ("both_forms", "The same is said in one file and in a directory of files."),
    ("cycle", "Components depend on each other in a circle."),
    (
        "disabled_dependency",
        "A component that is enabled in a new install requires one that is not.",
    ),
    ("duplicate_name", "Two things of one kind have the same name."),
    ("empty_file", "A file says nothing, and counts as absent."),
    ("legacy_format", "A file is of the older one-file format, which is not read."),
    ("malformed_bundle", "A bundle is not as `stead apps sync` makes it."),
    ("malformed_file", "A file is no TOML, no UTF-8, or too large."),
    ("missing_file", "A file that a key names does not exist or is no text."),
    ("missing_key", "A key that has to be there is absent."),
    ("missing_module", "The module directory of a component or the sandbox is absent."),
    ("missing_variable", "A module requires a variable that nothing gives a value."),
    ("never_fires", "A trigger or a schedule can never fire."),
    ("no_effect", "A value is read where it means nothing."),
    ("no_metadata", "The directory has no metadata.toml."),
    ("no_plugin", "There is no plugin yet for a component's type; it cannot be deployed."),
    ("no_sandbox", "The directory has no sandbox.toml."),
    ("no_schedule", "A cron trigger has no schedule."),
    ("no_script", "A step has nothing to run."),
    ("no_steps", "An action or a runbook has no steps."),
    ("no_template", "A text looks like a template and is none: a dot is missing."),
    ("not_enforced", "Something is read and not enforced by this release."),
    ("not_supported", "Something is no longer part of the format."),
    ("not_yet", "Something is read and not acted on by this release."),
    ("path_escape", "A path leads out of the directory it is relative to."),
    ("remote_content", "A text is at a remote place, which is not fetched."),
    ("reserved_variable", "Only the customer's host may set a variable of this name."),
    (
        "runner_mismatch",
        "The type of the runner is for another cloud or platform than the sandbox or the stack.",
    ),
    ("sandbox_first", "The sandbox reads something that exists only after it."),
    (
        "script_elsewhere",
        "A step takes its script from a repository, which a bundle does not hold.",
    ),
    ("secret_clash", "Two options of a secret exclude each other."),
    ("sensitive_value", "A file gives a sensitive input a value in the clear."),
    ("template", "A template cannot be read."),
    ("too_many", "There are more findings than are shown."),
    ("too_much", "The files that a directory names are too large together."),
    ("two_scripts", "A step has more than one thing to run."),
    ("two_sources", "A component has more than one source."),
    ("unknown_action", "An action that something names does not exist."),
    ("unknown_component", "A component that something names does not exist."),
    ("unknown_group", "The group of an input is not declared."),
    ("unknown_input", "An input that something names does not exist."),
    ("unknown_input_type", "There is no such type of input."),
    ("unknown_key", "A key is not known at its place and has no effect."),
    ("unknown_kind", "There is no such type of component."),
    ("unknown_output", "A template reads an output that the module does not have."),
    ("unknown_role", "A role that something names does not exist."),
    ("unknown_role_type", "There is no such type of role."),
    ("unknown_secret", "A secret that a template reads does not exist."),
    ("unknown_trigger", "There is no such trigger."),
    ("unknown_variable", "A component gives its module a variable that the module does not have."),
    ("unreadable", "A file or a directory cannot be read on this machine."),
    ("unused_file", "A file is of no kind of the format and has no effect."),
    ("wrong_type", "A value is of another type than its key takes."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_distinct() {
        assert!(CODES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
