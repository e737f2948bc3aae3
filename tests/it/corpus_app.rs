//! Tests unchanged third-party apps of the same format, with stubs for the modules that they name.
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;
use tests::{
    Customer, Registry, Runner, Server, in_ci, stdout_of, step, succeeded, terraform_or_skip, until,
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the corpus directory. Without it, the test prints a note and passes; in CI it fails.
fn corpus_or_skip() -> Option<PathBuf> {
    let found = std::env::var_os("CORPUS_DIR").map(PathBuf::from).filter(|dir| dir.is_dir());
    if found.is_none() {
        assert!(!in_ci(), "CI must name the corpus by CORPUS_DIR");
        eprintln!("SKIPPED: no corpus; name its directory by CORPUS_DIR");
    }
    found
}

/// Returns the `--source` option for a repository of the corpus.
fn at(name: &str, dir: &Path) -> [String; 2] {
    ["--source".into(), format!("{name}={}", dir.display())]
}

/// Publishes an app with its repositories, and waits for its builds.
fn published(server: &Server, app: &Path, repos: &[[String; 2]]) -> Value {
    let mut args = vec!["apps", "sync", app.to_str().unwrap()];
    args.extend(repos.as_flattened().iter().map(String::as_str));
    args.push("--wait");
    server.cli_json(&args)
}

/// Creates the install `acme` of an app and provisions it with this customer.
fn provisioned(
    server: &Server,
    app: &str,
    customer: impl FnOnce(Customer) -> Customer,
) -> (Runner, Value) {
    let created = server.cli_json(&["installs", "create", app, "acme", "--auto-approve"]);
    let token = created["enrolment"]["token"].as_str().unwrap();
    let runner = customer(Customer::new(server, "customer")).start(server, token);
    until("the provision run", TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    (runner, succeeded(server, "acme"))
}

/// Returns the outputs of a component, as templates read them.
fn outputs(server: &Server, component: &str) -> Value {
    let state = server.cli_json(&["installs", "state", "acme"]);
    state["nuon"]["components"][component]["outputs"].clone()
}

fn log_of_action(server: &Server, action: &str) -> String {
    server.cli_json(&["installs", "action", "acme", action]);
    let run = tests::ended(server, "acme");
    let job = step(&run, action)["job"].as_str().unwrap_or_else(|| panic!("{run:#}"));
    stdout_of(server.stead_for_people().args(["jobs", "logs", job]))
}

#[test]
fn httpbin_is_provisioned_unchanged() {
    let Some(corpus) = corpus_or_skip().filter(|_| terraform_or_skip()) else { return };
    let server = Server::up();
    let app = corpus.join("apps/httpbin");
    let repo = |name: &str| at(name, &corpus.join("repos").join(name));
    let repos = ["nuonco/aws-min-sandbox", "nuonco/example-app-configs"].map(repo);

    let synced = published(&server, &app, &repos);
    assert_eq!(synced["version"], 1, "{synced:#}");
    assert_eq!(synced["builds"].as_array().unwrap().len(), 2, "{synced:#}");
    assert_eq!(published(&server, &app, &repos)["unchanged"], true);

    let (_runner, run) = provisioned(&server, "httpbin", |customer| customer);
    for name in ["sandbox", "ec2"] {
        assert_eq!(step(&run, name)["state"], "succeeded", "{run:#}");
    }

    // The component received the sandbox's outputs, and an action receives the component's outputs.
    let install = server.cli_json(&["installs", "show", "acme"]);
    let region = &install["sandbox"]["outputs"]["account"]["region"];
    assert!(region.as_str().is_some_and(|region| region.starts_with("region-")), "{install:#}");
    let ip = outputs(&server, "ec2")["public_ip"].clone();
    let ip = ip.as_str().filter(|ip| ip.starts_with("public-ip-"));
    let ip = ip.unwrap_or_else(|| panic!("{:#}", outputs(&server, "ec2")));

    // The health check calls an invalid address. The log shows that the script ran, because it
    // contains the address.
    let log = log_of_action(&server, "healthcheck");
    assert!(log.contains(ip), "{log}");
}

#[test]
fn gcp_gcs_static_site_is_provisioned_with_its_stack_outputs() {
    let Some(corpus) = corpus_or_skip().filter(|_| terraform_or_skip()) else { return };
    let server = Server::up();
    let app = corpus.join("apps/gcp-gcs-static-site");
    let repo = |name: &str| at(name, &corpus.join("repos").join(name));
    let repos = ["nuonco/gcp-min-sandbox", "nuonco/example-app-configs"].map(repo);
    published(&server, &app, &repos);
    let with_project = |customer: Customer| customer.output("project_id=acme-project-1");
    let (_runner, run) = provisioned(&server, "gcp-gcs-static-site", with_project);
    for name in ["sandbox", "gcs_bucket", "cdn", "upload_site"] {
        assert_eq!(step(&run, name)["state"], "succeeded", "{run:#}");
    }
    let cdn_outputs = outputs(&server, "cdn");
    let (ip, url) =
        (cdn_outputs["cdn_ip"].as_str().unwrap(), cdn_outputs["site_url"].as_str().unwrap());
    let log = log_of_action(&server, "site_url");
    assert!(log.contains(&format!("http://{ip}")) && log.contains(url), "{log}");
}

/// Changes the Lambda stub, which returns a string where the app reads a member of an object
/// (`….outputs.lambda_function.lambda_function_arn`). The real module returns an object, as the
/// corpus' own install state shows. The changed stub also returns an object.
fn corrected_modules(corpus: &Path, into: &Path) -> PathBuf {
    let original = corpus.join("repos/nuonco/example-app-configs/aws-lambda");
    stdout_of(Command::new("cp").arg("-R").arg(original).arg(into.join("aws-lambda")));
    stdout_of(Command::new("chmod").args(["-R", "u+w"]).arg(into));
    let file = into.join("aws-lambda/src/components/lambda-function/main.tf");
    let text = fs::read_to_string(&file).unwrap();
    let value =
        text.lines().find(|line| line.trim_start().starts_with("value = \"lambda-function-"));
    let value = value.unwrap_or_else(|| panic!("the stub has changed: {text}"));
    let object = value.replace("value = ", "value = { lambda_function_arn = ") + " }";
    fs::write(&file, text.replace(value, &object)).unwrap();
    into.to_path_buf()
}

#[test]
fn aws_lambda_is_provisioned_and_components_get_outputs() {
    let Some(corpus) = corpus_or_skip().filter(|_| terraform_or_skip()) else { return };
    let server = Server::up();
    let (app, modules) = (corpus.join("apps/aws-lambda"), server.dir().join("modules"));
    fs::create_dir(&modules).unwrap();
    let sandbox = corpus.join("repos/nuonco/aws-min-sandbox");
    let modules = corrected_modules(&corpus, &modules);
    let repos =
        [at("nuonco/aws-min-sandbox", &sandbox), at("nuonco/example-app-configs", &modules)];
    published(&server, &app, &repos);

    // The test has no internet access, so a program of the customer responds to the request.
    let tools = server.dir().join("tools");
    fs::create_dir(&tools).unwrap();
    let curl = tools.join("curl");
    let script = "#!/bin/sh\nwhile [ $# -gt 1 ]; do [ \"$1\" = -o ] && echo '{\"id\":\"healthcheck\"}' \
                   > \"$2\"; shift; done\nprintf 200\n";
    fs::write(&curl, script).unwrap();
    fs::set_permissions(&curl, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let (_runner, run) = provisioned(&server, "aws-lambda", |customer| customer.env("PATH", &path));
    for name in ["sandbox", "lambda_function", "certificate", "api_gateway"] {
        assert_eq!(step(&run, name)["state"], "succeeded", "{run:#}");
    }
    let function = outputs(&server, "lambda_function");
    let arn = &function["lambda_function"]["lambda_function_arn"];
    assert!(arn.as_str().is_some_and(|arn| arn.starts_with("lambda-function-")), "{function:#}");
    let gateway = outputs(&server, "api_gateway")["api_gateway"].clone();
    assert!(gateway.as_str().is_some_and(|name| name.starts_with("api-gateway-")), "{gateway:#}");

    let log = log_of_action(&server, "http_healthcheck");
    assert!(log.contains("/widgets/healthcheck") && log.contains("healthcheck passed"), "{log}");
    assert!(log.contains(".name-8aac/"), "the sandbox's domain: {log}");
}

#[test]
fn an_app_with_a_container_image_is_deployed() {
    let Some(corpus) = corpus_or_skip().filter(|_| terraform_or_skip()) else { return };
    let Some(hub) = Registry::start_or_skip() else { return };
    let whoami = hub.push_image("containous/whoami", "v1.5.0", "linux/amd64", &[b"whoami"]);
    let mirror = format!("docker.io={}", hub.url());
    let server = Server::up_with("127.0.0.1:0", &["--registry-mirror", &mirror]);
    let app = corpus.join("apps/ecs-simple");
    let repo = |name: &str| at(name, &corpus.join("repos").join(name));
    let repos = ["nuonco/aws-min-sandbox", "nuonco/example-app-configs", "nuonco/components"];
    published(&server, &app, &repos.map(repo));
    let vpc = server.dir().join("stack.json");
    fs::write(&vpc, "{\"vpc_id\": \"vpc-0a1b\", \"region\": \"eu-1\"}").unwrap();
    let mut args = vec!["installs", "create", "ecs-simple", "acme", "--auto-approve"];
    args.extend(["--stack-outputs-file", vpc.to_str().unwrap()]);
    args.extend(["--stack-output", "region=eu-central-1"]);
    let created = server.cli_json(&args);
    let token = created["enrolment"]["token"].as_str().unwrap();
    let _runner = Customer::new(&server, "customer").start(&server, token);
    until("the provision run", TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    let run = succeeded(&server, "acme");
    for name in ["sandbox", "certificate", "cluster", "alb", "img_whoami", "whoami"] {
        assert_eq!(step(&run, name)["state"], "succeeded", "{run:#}");
    }
    let image = outputs(&server, "img_whoami")["image"].clone();
    assert_eq!(image["repository"], "docker.io/containous/whoami", "{image:#}");
    assert_eq!(image["tag"], format!("v1.5.0@{}", whoami.digest), "{image:#}");
}

#[test]
fn every_terraform_only_app_of_the_corpus_has_a_test() {
    let Some(corpus) = corpus_or_skip() else { return };
    let facts = fs::read(corpus.join("facts.json")).unwrap();
    let facts: Value = serde_json::from_slice(&facts).unwrap();
    let is_terraform_only = |app: &Value| {
        let kinds = app["components"]["by_type"].as_object().unwrap();
        kinds.keys().eq(["terraform_module"])
    };
    let all = facts.as_object().unwrap().iter().filter(|(_, app)| is_terraform_only(app));
    let mut names: Vec<_> = all.map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["aws-lambda", "gcp-gcs-static-site", "httpbin"]);
}
