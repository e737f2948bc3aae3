//! Kinds of settings that are read but not acted on, with the actual behavior.

/// How occurrences are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Per {
    /// One per key.
    Key,
    /// One per file, or per table of a file that holds several parts.
    Part,
    /// By the reader of the section, because the keys alone do not suffice.
    Reader,
}

/// One kind of warning. `{}` stands for the component type or the trigger.
#[derive(Debug)]
pub struct Kind {
    pub id: &'static str,
    pub per: Per,
    pub code: &'static str,
    pub what: &'static str,
    pub instead: &'static str,
    pub remedy: &'static str,
    /// Whether the value must not be shown.
    pub is_secret: bool,
}

const fn kind(
    id: &'static str,
    per: Per,
    what: &'static str,
    instead: &'static str,
    remedy: &'static str,
) -> Kind {
    Kind { id, per, code: "not_yet", what, instead, remedy, is_secret: false }
}

/// Sorted by id.
pub const KINDS: &[Kind] = &[
    kind(
        "action_inputs",
        Per::Key,
        "`inputs` of an action",
        "an action is started without inputs of its own",
        "give the step env_vars that read the install's inputs",
    ),
    kind(
        "approve_on_policies",
        Per::Key,
        "`auto_approve_on_policies_passing`",
        "no policy is evaluated, so each plan waits for its approval",
        "approve plans, or let the install approve them: stead installs auto-approve INSTALL on",
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
        "nobody can enable it, because Stead creates no role in the customer's account",
        "agree on emergency access with the customer",
    ),
    kind(
        "cluster_access",
        Per::Key,
        "access to a Kubernetes cluster (`enable_kube_config`, `kubernetes_context`)",
        "no job is given a kubeconfig",
        "have the customer's runner pass one: --pass-env KUBECONFIG",
    ),
    kind(
        "directory_install",
        Per::Part,
        "install described in the directory",
        "a sync creates and changes no install",
        "create it: stead installs create APP NAME",
    ),
    kind(
        "drift",
        Per::Key,
        "`drift_schedule`",
        "this release does not look for drift",
        "look for drift by other means until a later release does",
    ),
    kind(
        "helm_driver",
        Per::Key,
        "`helm_driver`",
        "this release deploys no chart by itself",
        "give the setting to your plugin for charts",
    ),
    kind(
        "input_visibility",
        Per::Key,
        "`internal` or `user_configurable`",
        "the vendor shows and sets such an input or secret like any other, and the customer sets none",
        "set inputs with `stead installs set-inputs`",
    ),
    kind(
        "installer",
        Per::Part,
        "installer page",
        "no such page is published",
        "send the customer the command that `stead installs create` prints",
    ),
    Kind {
        id: "no_plugin",
        per: Per::Reader,
        code: "no_plugin",
        what: "type `{}`",
        instead: "it is published and shown, and its deploy is refused until the plugin for it is pinned",
        remedy: "use a `terraform_module`, or a plugin of yours: --plugin {}=PATH",
        is_secret: false,
    },
    Kind {
        is_secret: true,
        ..kind(
            "notification",
            Per::Key,
            "`slack_webhook_url`",
            "no message is sent to it",
            "follow runs with `stead runs watch`, or the log with `stead audit events`",
        )
    },
    kind(
        "onboarding",
        Per::Key,
        "`onboarding`",
        "no guide is shown to the customer",
        "send it to the customer",
    ),
    kind(
        "operation_role",
        Per::Key,
        "operation role",
        "its name is sent with the job, where the customer's policy can check it, and the runner assumes no role",
        "give the runner's own identity what its jobs need",
    ),
    kind(
        "part_role",
        Per::Key,
        "`role` or `break_glass_role`",
        "its name is sent with the job, where the customer's policy can check it, and the runner assumes no role",
        "give the runner's own identity what its jobs need",
    ),
    kind(
        "permission_role",
        Per::Part,
        "role with permissions",
        "Stead creates no role in the customer's account and grants nothing",
        "have the customer grant the runner's own identity what its jobs need",
    ),
    Kind {
        code: "not_enforced",
        ..kind(
            "policy",
            Per::Part,
            "policy",
            "policies are not enforced by this release",
            "look at plans yourself; approvals are on the plan",
        )
    },
    kind(
        "repository_branch",
        Per::Key,
        "`branch` of a repository",
        "the directory on this machine is published as it is, whatever its branch",
        "check out that branch before the sync",
    ),
    kind(
        "runbook",
        Per::Part,
        "runbook",
        "this release does not run them",
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
    Kind {
        id: "script_elsewhere",
        per: Per::Reader,
        code: "script_elsewhere",
        what: "step with its script in a repository",
        instead: "it is published, and refused when it is to run",
        remedy: "write the script in the step's inline_contents",
        is_secret: false,
    },
    kind(
        "secret",
        Per::Part,
        "secret",
        "secrets are not handed to jobs by this release, and a template that reads `.nuon.secrets` fails",
        "have the customer's runner pass the value: --pass-env NAME",
    ),
    kind(
        "sensitive_input",
        Per::Reader,
        "sensitive input",
        "this release takes no value for it",
        "until a later release encrypts sensitive inputs for the install's runner take the value in the \
         account, in the module",
    ),
    kind(
        "stack",
        Per::Part,
        "stack.toml",
        "no stack is generated, and the customer starts the runner themselves",
        "send the customer the command that `stead installs create` prints",
    ),
    kind(
        "trigger",
        Per::Reader,
        "trigger `{}`",
        "this release reads it and does not fire it",
        "start such an action yourself: stead installs action INSTALL ACTION",
    ),
    kind(
        "var_name",
        Per::Key,
        "`var_name`",
        "templates know the component by its `name` only",
        "read it as `.nuon.components.NAME`",
    ),
];
