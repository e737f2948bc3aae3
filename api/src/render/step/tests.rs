//! Rendering of steps: config version, settings, environment and role.
use domain::{
    actor::Actor,
    ids::{BuildId, ComponentId, StepId},
    install::{Deployed, Sandbox},
    run::{Cause, RunKind, StepSpec, StepState},
};
use ulid::Ulid;

use super::*;

#[test]
fn destroy_uses_the_config_that_deployed_the_component() {
    let fingerprint: domain::digest::Digest = format!("sha256:{}", "0".repeat(64)).parse().unwrap();
    let (build, component) = (BuildId(Ulid::new()), ComponentId(Ulid::new()));
    let sandbox = Sandbox {
        build,
        config_version: 1,
        fingerprint: Some(fingerprint.clone()),
        outputs: Default::default(),
    };
    let deployed = Deployed {
        component,
        build,
        config_version: 2,
        fingerprint: Some(fingerprint),
        depends_on: Default::default(),
        outputs: Default::default(),
        read_at: 0,
    };
    let has = Install {
        sandbox: Some(sandbox),
        components: [("api".to_string(), deployed)].into(),
        ..Install::default()
    };
    let request = Request {
        install: InstallId(Ulid::new()),
        kind: RunKind::Deprovision,
        cause: Cause::Requested,
        by: Actor::System,
        config_version: 3,
        reason: None,
        plan_all: false,
    };
    let api =
        Target::Component { component, name: "api".into(), build, depends_on: Default::default() };
    let version = |install: &Install, target: &Target, operation| {
        let (step, depends_on, fingerprint) = (StepId(Ulid::new()), vec![], None);
        let spec = StepSpec {
            step,
            target: target.clone(),
            operation,
            depends_on,
            fingerprint,
            options: Default::default(),
        };
        let step = Step { spec, state: StepState::Waiting, voided: 0, retries: 0, jobs: vec![] };
        config_version(&request, install, &step)
    };
    let deployed_by = |install: &Install, target: &Target| {
        let (step, depends_on, fingerprint) = (StepId(Ulid::new()), vec![], None);
        let (target, operation) = (target.clone(), Operation::Apply);
        let spec = StepSpec {
            step,
            target,
            operation,
            depends_on,
            fingerprint,
            options: Default::default(),
        };
        let step = Step { spec, state: StepState::Waiting, voided: 0, retries: 0, jobs: vec![] };
        deployed_version(install, &step)
    };
    assert_eq!(deployed_by(&has, &api), Some(2));
    assert_eq!(deployed_by(&Install::default(), &api), None);
    assert_eq!(version(&has, &Target::Sandbox { build }, Operation::Destroy), 1);
    assert_eq!(version(&has, &api, Operation::Destroy), 2);
    assert_eq!(version(&has, &Target::Sandbox { build }, Operation::Apply), 3);
    assert_eq!(version(&has, &api, Operation::Apply), 3);
    assert_eq!(version(&Install::default(), &api, Operation::Destroy), 3);
    assert_eq!(version(&has, &Target::Action { name: "seed".into() }, Operation::Execute), 3);
}

/// Context of an install whose app has these files.
fn context(files: &[(&str, &str)]) -> StepContext {
    let mut tree = app_config::Tree::default();
    for (path, text) in files {
        let file = app_config::File { bytes: text.as_bytes().to_vec(), executable: false };
        tree.insert(path, file).unwrap();
    }
    let config = crate::configs::read(&tree.encode().unwrap(), vec![]).unwrap();
    let (run, install) = (RunId(Ulid::new()), InstallId(Ulid::new()));
    let request = Request {
        install,
        kind: RunKind::Deploy,
        cause: Cause::Requested,
        by: Actor::System,
        config_version: 1,
        reason: None,
        plan_all: false,
    };
    let mut nuon = json!({ "nuon": {
        "app": { "id": "app_1" },
        "install": { "id": "ins_1", "name": "acme" },
    } });
    let sensitive = SensitiveValues::mark(&mut nuon, &config.app, Default::default());
    StepContext {
        sensitive,
        run,
        install,
        request,
        config: Arc::new(config),
        nuon,
        is_provisioned: false,
        state: None,
    }
}

#[test]
fn plugin_gets_its_rendered_settings_and_terraform_gets_none() {
    let pins =
        format!(r#"[{{"name":"vault","version":"1","digest":"sha256:{}"}}]"#, "0".repeat(64));
    let file = "name = \"api\"\ntype = \"vault\"\ntarget = \"/srv/{{ .nuon.install.name }}\"\n\
                dependencies = []\n[vars]\nx = \"1\"\n[retention]\ndays = 3\nkeep = [\"a\", \"b\"]\n";
    let (metadata, source) = ("version = \"v2\"\n", "hello");
    let of = |component: &str, pins: &str| {
        let context = context(&[
            ("app/metadata.toml", metadata),
            ("app/components/api.toml", component),
            ("source/api/main.tf", source),
            ("plugins.json", pins),
        ]);
        let module = &context.config.app.components[0].module;
        context.module("api", module, Operation::Apply).unwrap().inputs
    };
    let inputs = of(file, &pins);
    let own = json!({ "target": "/srv/acme", "retention": { "days": 3, "keep": ["a", "b"] } });
    assert_eq!((&inputs["settings"], inputs.get("terraform_version")), (&own, None));
    let terraform = "name = \"api\"\ntype = \"terraform_module\"\nterraform_version = \"1.11.4\"\n\
                     [public_repo]\nrepo = \".\"\ndirectory = \".\"\n";
    let inputs = of(terraform, "[]");
    assert_eq!((inputs.get("settings"), &inputs["terraform_version"]), (None, &json!("1.11.4")));
}

#[test]
fn script_environment_has_install_and_app_ids() {
    let action = "name = \"seed\"\n[[steps]]\nname = \"s\"\ninline_contents = \"true\"\n";
    let runner =
        "runner_type = \"local\"\n[env_vars]\nNUON_APP_ID = \"another\"\nREGION = \"eu\"\n";
    let context = context(&[
        ("app/metadata.toml", "version = \"v2\"\n"),
        ("app/runner.toml", runner),
        ("app/actions/seed.toml", action),
    ]);
    let env = context.action("seed", &Artifacts::new()).unwrap().env;
    let install = context.install.to_string();
    for (name, value) in [
        ("NUON_INSTALL_ID", install.to_lowercase().replace('_', "-").as_str()),
        ("STEAD_INSTALL_ID", &install),
        ("NUON_APP_ID", "app_1"),
        ("STEAD_APP_ID", "app_1"),
        ("REGION", "eu"),
    ] {
        assert_eq!(env.get(name).map(String::as_str), Some(value), "{name}");
    }
}

#[test]
fn step_has_the_artifact_of_its_scripts() {
    let source = "repo = \"acme/actions\"\ndirectory = \"kube\"\n";
    let action = format!(
        "name = \"seed\"\n[[steps]]\nname = \"s\"\ncommand = \"./s.sh\"\n[steps.public_repo]\n{source}\
         [[steps]]\nname = \"t\"\ncommand = \"true\"\n"
    );
    let context =
        context(&[("app/metadata.toml", "version = \"v2\"\n"), ("app/actions/seed.toml", &action)]);
    let digest: domain::digest::Digest = format!("sha256:{}", "1".repeat(64)).parse().unwrap();
    let (repository, size_bytes) = ("shop/scripts".to_owned(), 1);
    let artifact = Artifact { repository, digest: digest.clone(), size_bytes, upstream: None };
    let [scripts] = context.config.app.scripts.as_slice() else { panic!() };
    let artifacts = Artifacts::from([(scripts.name.clone(), artifact)]);

    let inputs = context.action("seed", &artifacts).unwrap().inputs;
    assert_eq!(inputs["steps"][0]["artifact"], json!(digest));
    assert_eq!(inputs["steps"][1].get("artifact"), None);
    let Err(message) = context.action("seed", &Artifacts::new()) else { panic!() };
    assert!(message.contains("the scripts of step `s` are not built"), "{message}");
}

#[test]
fn component_role_depends_on_the_operation() {
    let named = "role = \"{{ .nuon.install.id }}-api\"\n[[operation_roles]]\n\
                 operation = \"teardown\"\nrole = \"{{ .nuon.install.id }}-api-down\"\n";
    let role = |own: &str, operation| {
        let component = format!(
            "name = \"api\"\ntype = \"terraform_module\"\nterraform_version = \"1.11.4\"\n{own}\
             [public_repo]\nrepo = \".\"\ndirectory = \".\"\n"
        );
        let permissions =
            |kind: &str| format!("type = \"{kind}\"\nname = \"{kind}\"\ndescription = \"d\"\n");
        let (maintenance, deprovision) = (permissions("maintenance"), permissions("deprovision"));
        let context = context(&[
            ("app/metadata.toml", "version = \"v2\"\n"),
            ("app/components/api.toml", &component),
            ("app/permissions/maintenance.toml", &maintenance),
            ("app/permissions/deprovision.toml", &deprovision),
            ("source/api/main.tf", "#"),
        ]);
        let module = &context.config.app.components[0].module;
        context.module("api", module, operation).unwrap().role.unwrap()
    };
    assert_eq!(role(named, Operation::Apply), "ins_1-api");
    assert_eq!(role(named, Operation::Destroy), "ins_1-api-down");
    assert_eq!(role("", Operation::Apply), "maintenance");
    assert_eq!(role("", Operation::Destroy), "deprovision");
}

#[test]
fn role_rules_apply_to_components_sandbox_and_actions() {
    let rule = |principal: &str, operation: &str, role: &str| {
        format!(
            "[[rules]]\nprincipal = \"nuon::{principal}\"\noperation = \"{operation}\"\n\
             role = \"{{{{ .nuon.install.id }}}}-{role}\"\n"
        )
    };
    let rules = [
        rule("component:web", "deploy", "web"),
        rule("component:api", "teardown", "api-down"),
        rule("component:api", "deploy", "api"),
        rule("sandbox", "provision", "sandbox"),
        rule("action:seed", "trigger", "seed"),
    ];
    let rules = format!("type = \"matrix\"\n{}", rules.concat());
    let module = "terraform_version = \"1.11.4\"\n[public_repo]\nrepo = \".\"\ndirectory = \".\"\n";
    let role = |own: &str, name: &str, operation| {
        let component = format!("name = \"api\"\ntype = \"terraform_module\"\n{own}{module}");
        let action = "name = \"seed\"\n[[steps]]\nname = \"s\"\ninline_contents = \"true\"\n";
        let context = context(&[
            ("app/metadata.toml", "version = \"v2\"\n"),
            ("app/operation_roles.toml", &rules),
            ("app/sandbox.toml", module),
            ("app/components/api.toml", &component),
            ("app/actions/seed.toml", action),
            ("source/api/main.tf", "#"),
            ("source/sandbox/main.tf", "#"),
        ]);
        let parts = match name {
            "seed" => context.action(name, &Artifacts::new()),
            SANDBOX => context.module(
                name,
                &context.config.app.sandbox.as_ref().unwrap().module,
                operation,
            ),
            _ => context.module(name, &context.config.app.components[0].module, operation),
        };
        parts.unwrap().role.unwrap()
    };
    assert_eq!(role("", "api", Operation::Apply), "ins_1-api");
    assert_eq!(role("", "api", Operation::Destroy), "ins_1-api-down");
    assert_eq!(role("role = \"own\"\n", "api", Operation::Apply), "ins_1-api");
    let own = "operation_roles = [{ operation = \"deploy\", role = \"own\" }]\n";
    assert_eq!(role(own, "api", Operation::Apply), "own");
    assert_eq!(role("", SANDBOX, Operation::Apply), "ins_1-sandbox");
    assert_eq!(role("", "seed", Operation::Execute), "ins_1-seed");
}

#[test]
fn component_sets_its_deadline() {
    let deadline = |own: &str| {
        let component = format!(
            "name = \"api\"\ntype = \"terraform_module\"\nterraform_version = \"1.11.4\"\n{own}\
             [public_repo]\nrepo = \".\"\ndirectory = \".\"\n"
        );
        let context = context(&[
            ("app/metadata.toml", "version = \"v2\"\n"),
            ("app/components/api.toml", &component),
            ("source/api/main.tf", "#"),
        ]);
        let module = &context.config.app.components[0].module;
        context.module("api", module, Operation::Apply).unwrap().deadline_ms
    };
    let (hour, minute) = (3_600_000, 60_000);
    assert_eq!(deadline(""), hour);
    assert_eq!(deadline("timeout = \"5m\"\n"), 5 * minute);
    assert_eq!(deadline("timeout = \"5m\"\ndeploy_timeout = \"2h\"\n"), 2 * hour);
    assert_eq!(deadline("deploy_timeout = \"900h\"\n"), 24 * hour);
}

#[test]
fn kubernetes_manifest_gets_the_texts_of_its_files() {
    let component = "name = \"web\"\ntype = \"kubernetes_manifest\"\n\
                     namespace = \"{{ .nuon.install.name }}\"\nmanifest = \"./web.yaml\"\n\
                     deploy_timeout = \"10s\"\ntake_ownership = true\n\
                     [outputs.address]\nkind = \"Service\"\n\
                     name = \"{{ .nuon.install.name }}-web\"\nfield = \"spec.clusterIP\"\n";
    let pins = format!(
        r#"[{{"name":"kubernetes_manifest","version":"1","digest":"sha256:{}"}}]"#,
        "0".repeat(64)
    );
    let context = context(&[
        ("app/metadata.toml", "version = \"v2\"\n"),
        ("app/components/web.toml", component),
        ("app/components/web.yaml", "name: {{ .nuon.install.name }}-web\n"),
        ("plugins.json", &pins),
    ]);
    let module = &context.config.app.components[0].module;
    let inputs = context.module("web", module, Operation::Apply).unwrap().inputs;
    assert_eq!(inputs["install"], json!(context.install));
    let output = json!({ "kind": "Service", "name": "acme-web", "field": "spec.clusterIP" });
    let settings = json!({
        "namespace": "acme",
        "manifest": "name: acme-web\n",
        "manifest_file": "components/web.yaml",
        "take_ownership": true,
        "ready_timeout_ms": 9000,
        "outputs": { "address": output },
    });
    assert_eq!(inputs["settings"], settings);
}

#[test]
fn kustomization_gets_its_rendered_files() {
    let component = "name = \"web\"\ntype = \"kubernetes_manifest\"\nnamespace = \"shop\"\n\
                     [kustomize]\npath = \"./deploy/base\"\npatches = [\"{{ .nuon.install.name }}\"]\n";
    let context = context(&[
        ("app/metadata.toml", "version = \"v2\"\n"),
        ("app/components/web.toml", component),
        ("app/deploy/base/kustomization.yaml", "namePrefix: {{ .nuon.install.name }}-\n"),
    ]);
    let module = &context.config.app.components[0].module;
    let inputs = context.module("web", module, Operation::Apply).unwrap().inputs;
    let files = json!({ "deploy/base/kustomization.yaml": "namePrefix: acme-\n" });
    let kustomize = json!({ "path": "./deploy/base", "patches": ["acme"], "enable_helm": false,
                            "files": files });
    assert_eq!(inputs["settings"]["kustomize"], kustomize);
}

#[test]
fn error_of_a_missing_action_output_names_the_action_to_run() {
    let mut context = context(&[("app/metadata.toml", "version = \"v2\"\n")]);
    let workflows = json!({ "probe": { "status": "pending", "outputs": {} } });
    context.nuon["nuon"]["name"] = "acme".into();
    context.nuon["nuon"]["actions"] = json!({ "workflows": workflows });
    let value = "{{ .nuon.actions.workflows.probe.outputs.address }}".to_owned();
    let text = Text { value, ..Text::default() };
    let error = context.text(&text).unwrap_err();
    let advice = "; action probe has not run: run `stead installs action acme probe`, then deploy \
                  again";
    assert!(error.ends_with(advice), "{error}");
    // and the error of an action that ran names only the missing output
    context.nuon["nuon"]["actions"]["workflows"]["probe"]["status"] = "active".into();
    let error = context.text(&text).unwrap_err();
    assert!(!error.contains("has not run"), "{error}");
}
