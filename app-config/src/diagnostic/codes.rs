//! Stable codes of findings. Programs and suppressions use them, so a code is never reused.

/// Codes, each with a one-sentence description.
pub const CODES: &[(&str, &str)] = &[
    ("bad_cron", "A schedule is not a valid cron expression."),
    ("bad_default", "A default is not a valid value of its input's type."),
    ("bad_duration", "A duration is invalid or too long."),
    ("bad_image", "The name, the tag or a platform of a container image is not valid."),
    ("bad_manifest", "A document of a manifest is not valid YAML, or no object."),
    ("bad_module", "A file of a local module is neither valid HCL nor valid JSON."),
    ("bad_name", "A name cannot be used in a path or a template."),
    ("bad_repository", "The address, the branch or the chart of a repository cannot be fetched."),
    ("bad_timeout", "The timeout of an action is not a duration above 0 and up to 60m."),
    ("bad_value", "A value is not one of those that its key accepts."),
    ("bad_values", "A values file of a chart is not valid YAML, or no map."),
    ("both_forms", "A file and a directory of files declare the same kind."),
    ("cycle", "Components depend on each other in a cycle."),
    (
        "disabled_dependency",
        "A component that is enabled in a new install requires a disabled one.",
    ),
    ("duplicate_name", "Two parts of one kind have the same name."),
    ("duplicate_object", "Two components have the same Kubernetes object."),
    ("duplicate_release", "Two components have the same Helm release."),
    ("empty_file", "A file is empty and counts as absent."),
    (
        "inspects_sensitive",
        "A template inspects a sensitive input, whose value the server does not know.",
    ),
    ("legacy_format", "A file is of the older one-file format, which is not supported."),
    ("malformed_bundle", "A bundle differs from the form that `stead apps sync` creates."),
    ("malformed_file", "A file is invalid TOML, not UTF-8, or too large."),
    ("missing_chart", "The directory of a chart has no Chart.yaml."),
    ("missing_file", "A file that a key names does not exist or is not text."),
    ("missing_key", "A required key is absent."),
    ("missing_module", "The module directory of a component or the sandbox is absent."),
    ("missing_variable", "Nothing sets a variable that a module requires."),
    ("mixed_cluster_access", "The steps of an action differ in their access to the cluster."),
    ("never_fires", "A trigger or a schedule can never fire."),
    ("new_publisher", "A plugin has another publisher than in the previous version of the app."),
    ("no_effect", "A value has no effect where it is set."),
    ("no_metadata", "The directory has no metadata.toml."),
    (
        "no_plugin",
        "The plugin for a component's type is missing, so the component cannot be deployed.",
    ),
    ("no_sandbox", "The directory has no sandbox.toml."),
    ("no_schedule", "A cron trigger has no schedule."),
    ("no_script", "A step has no script."),
    ("no_steps", "An action or a runbook has no steps."),
    ("no_template", "A text looks like a template but is not one: a dot is missing."),
    ("not_enforced", "This release reads a setting but does not enforce it."),
    ("not_supported", "A setting is no longer part of the format."),
    ("not_yet", "This release reads a setting but does not act on it."),
    ("path_escape", "A path leaves its base directory."),
    ("remote_content", "A text is at a remote address, which is not fetched."),
    ("reserved_variable", "Only the customer's host may set a variable of this name."),
    (
        "runner_mismatch",
        "The type of the runner is for another cloud or platform than the sandbox or the stack.",
    ),
    ("sandbox_first", "The sandbox reads a value that exists only after its deploy."),
    ("secret_clash", "Two options of a secret exclude each other."),
    ("sensitive_value", "A file contains the value of a sensitive input in clear text."),
    ("template", "A template is invalid."),
    ("too_many", "There are more findings than the maximum that is shown."),
    ("too_much", "The files that a directory names exceed the maximum total size."),
    ("two_scripts", "A step has more than one script."),
    ("two_sources", "A component has more than one source."),
    ("unknown_action", "A named action does not exist."),
    ("unknown_component", "A named component does not exist."),
    ("unknown_group", "The group of an input is not declared."),
    ("unknown_input", "A named input does not exist."),
    ("unknown_input_type", "An input has an unknown type."),
    ("unknown_key", "A key is unknown at its location and has no effect."),
    ("unknown_kind", "A component has an unknown type."),
    ("unknown_output", "A template reads an output that the module does not have."),
    ("unknown_role", "A named role does not exist."),
    ("unknown_role_type", "A role has an unknown type."),
    ("unknown_secret", "A secret that a template reads does not exist."),
    ("unknown_trigger", "A trigger has an unknown type."),
    ("unknown_variable", "A component gives its module a variable that the module does not have."),
    ("unreadable", "A file or a directory cannot be read on this machine."),
    ("unused_file", "A file is not part of the app format and has no effect."),
    ("wrong_type", "The type of a value differs from the one that its key accepts."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_distinct() {
        assert!(CODES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
