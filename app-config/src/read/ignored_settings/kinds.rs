//! Kinds of settings that are read but not acted on, with the actual behavior.

/// Unit in which occurrences are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Per {
    /// One per key.
    Key,
    /// One per file, or per table of a file that holds several parts.
    Part,
    /// Counted by the reader of the section, because the keys alone do not suffice.
    Reader,
}

/// A kind of warning. `{}` is replaced with the component type or the trigger.
#[derive(Debug)]
pub struct Kind {
    pub id: &'static str,
    pub per: Per,
    pub code: &'static str,
    pub what: &'static str,
    pub behavior: &'static str,
    pub remedy: &'static str,
    /// True if the value must not be shown.
    pub is_secret: bool,
}

const fn kind(
    id: &'static str,
    per: Per,
    what: &'static str,
    behavior: &'static str,
    remedy: &'static str,
) -> Kind {
    Kind { id, per, code: "not_yet", what, behavior, remedy, is_secret: false }
}

/// All kinds, sorted by id.
pub const KINDS: &[Kind] = &[
    kind(
        "action_inputs",
        Per::Key,
        "`inputs` of an action",
        "actions start without their own inputs",
        "give the step env_vars that read the install's inputs",
    ),
    kind(
        "approve_on_policies",
        Per::Key,
        "`auto_approve_on_policies_passing`",
        "policies are not evaluated, so each plan waits for its approval",
        "approve plans, or enable automatic approval: stead installs auto-approve INSTALL on",
    ),
    kind(
        "branch",
        Per::Part,
        "branch",
        "a sync publishes the directory as it is and follows no branch",
        "run `stead apps sync` in the branch's pipeline",
    ),
    kind(
        "break_glass",
        Per::Part,
        "break-glass role",
        "no user can enable it, because Stead creates no role in the customer's account",
        "agree on emergency access with the customer",
    ),
    kind(
        "cluster_access",
        Per::Key,
        "`kubernetes_context` of the sandbox",
        "the sandbox creates its cluster itself",
        "set it for a component or an action",
    ),
    kind(
        "directory_install",
        Per::Part,
        "install described in the directory",
        "a sync neither creates nor changes installs",
        "create it: stead installs create APP NAME",
    ),
    kind(
        "drift",
        Per::Key,
        "`drift_schedule`",
        "this release does not check for drift on a schedule",
        "run `stead installs drift` regularly, for example as a cron job",
    ),
    kind(
        "ecr_role",
        Per::Part,
        "`iam_role_arn` or `region` of `aws_ecr`",
        "the build runner assumes no role, and reads the image with its own credentials for the registry",
        "give the build runner's user a Docker credential helper for ECR",
    ),
    kind(
        "helm_driver",
        Per::Key,
        "`helm_driver`",
        "each chart has its own storage driver",
        "set `storage_driver` of the component",
    ),
    kind(
        "input_visibility",
        Per::Key,
        "`internal` or `user_configurable`",
        "the vendor sees and sets such an input or secret like any other, and the customer cannot set it",
        "set inputs with `stead installs set-inputs`",
    ),
    kind(
        "installer",
        Per::Part,
        "installer page",
        "no installer page is published",
        "send the customer the command that `stead installs create` prints",
    ),
    Kind {
        id: "no_plugin",
        per: Per::Reader,
        code: "no_plugin",
        what: "type `{}`",
        behavior: "the component is published and shown, but its deploy is rejected unless a plugin for the type is published or pinned",
        remedy: "use a `terraform_module`, or publish a plugin before the sync: stead plugins push stead-plugin-{}",
        is_secret: false,
    },
    Kind {
        is_secret: true,
        ..kind(
            "notification",
            Per::Key,
            "`slack_webhook_url`",
            "no message is sent to the channel",
            "follow runs with `stead runs watch`, or the log with `stead audit events`",
        )
    },
    kind(
        "onboarding",
        Per::Key,
        "`onboarding`",
        "the guide is not shown to the customer",
        "send it to the customer",
    ),
    kind(
        "operation_role",
        Per::Key,
        "operation role",
        "the job contains its name for the customer's policy to check, but the runner assumes no role",
        "give the runner's own identity the permissions of its jobs",
    ),
    kind(
        "part_role",
        Per::Key,
        "`role` or `break_glass_role`",
        "the job contains its name for the customer's policy to check, but the runner assumes no role",
        "give the runner's own identity the permissions of its jobs",
    ),
    kind(
        "permission_role",
        Per::Part,
        "role with permissions",
        "Stead creates no role in the customer's account and grants nothing",
        "have the customer grant the runner's own identity the permissions of its jobs",
    ),
    Kind {
        code: "not_enforced",
        ..kind(
            "policy",
            Per::Part,
            "policy",
            "this release does not evaluate policies",
            "review plans before you approve them",
        )
    },
    kind(
        "runbook",
        Per::Part,
        "runbook",
        "this release does not run runbooks",
        "start their actions yourself: stead installs action INSTALL ACTION",
    ),
    kind(
        "runner_host",
        Per::Key,
        "`instance_type` or `init_script_url`",
        "the customer chooses and prepares the runner's machine",
        "tell the customer what the machine needs",
    ),
    kind(
        "sandbox_toggle",
        Per::Key,
        "`toggleable` or `default_enabled` of the sandbox",
        "the sandbox is always deployed",
        "remove sandbox.toml for an app without one",
    ),
    kind(
        "secret_option",
        Per::Key,
        "`auto_generate`, `format` or `kubernetes_…` of a secret",
        "jobs get the value that the customer sets, unchanged; Stead generates no value and writes no Secret of a cluster",
        "tell the customer which value to set: `stead-runner secret set NAME`; write a Secret with a manifest",
    ),
    kind(
        "stack",
        Per::Part,
        "stack.toml",
        "no stack is generated, so the customer starts the runner themselves",
        "send the customer the command that `stead installs create` prints",
    ),
    kind(
        "trigger",
        Per::Reader,
        "trigger `{}`",
        "this release reads it but does not fire it",
        "start such an action yourself: stead installs action INSTALL ACTION",
    ),
    kind(
        "var_name",
        Per::Key,
        "`var_name`",
        "templates find the component only by its `name`",
        "read it as `.nuon.components.NAME`",
    ),
];
