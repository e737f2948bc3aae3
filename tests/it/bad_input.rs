//! Tests that invalid input is rejected with its location and a fix, and changes nothing.
use std::{
    fs::{self, File},
    io::Read as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use tests::{
    HttpResponse, Runner, Server, call, edge_api, position, settled_position, step,
    terraform_or_skip, until,
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Starts a server with a published `edge-api`.
fn published() -> (Server, PathBuf) {
    let server = Server::up();
    let app = edge_api(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    (server, app)
}

/// Replaces a part of a file. The part must exist.
#[track_caller]
fn replace(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{} has no {from}", file.display());
    fs::write(file, text.replacen(from, to, 1)).unwrap();
}

type Change = fn(&Path);

/// Changes that make an app directory invalid, each with parts of the expected error.
const INVALID_APPS: [(&str, Change, &[&str]); 13] = [
    (
        "malformed TOML",
        |app| fs::write(app.join("components/cache.toml"), "name = \"cache\"\ntype = ").unwrap(),
        &["components/cache.toml:2:", "invalid TOML", "try:"],
    ),
    (
        "an oversize file",
        |app| File::create(app.join("big")).unwrap().set_len(17 << 20).unwrap(),
        &["/big: ", "larger than 16777216 bytes"],
    ),
    (
        "an oversize directory",
        |app| {
            for name in ["a", "b", "c", "d", "e"] {
                File::create(app.join(name)).unwrap().set_len(15 << 20).unwrap();
            }
        },
        &["/e: ", "larger than 67108864 bytes"],
    ),
    (
        "a symlink that leaves",
        |app| symlink("/etc/hostname", app.join("modules/api/hostname")).unwrap(),
        &["modules/api/hostname: the link leads out of the repository, to /etc/hostname", "try:"],
    ),
    (
        "a path that leaves",
        |app| replace(&app.join("components/api.toml"), "./api.tfvars", "../../etc/passwd"),
        &["components/api.toml:", "leaves the app directory"],
    ),
    (
        "an unknown component type",
        |app| replace(&app.join("components/cache.toml"), "terraform_module", "terafrom_module"),
        &["components/cache.toml:3:22: ", "unknown component type `terafrom_module`", "try:"],
    ),
    (
        "a NUL in a component type",
        |app| replace(&app.join("components/cache.toml"), "terraform_module", "terra\\u0000form"),
        &["components/cache.toml:3:22: ", "unknown component type", "try:"],
    ),
    (
        "a dependency cycle",
        |app| {
            let network = app.join("components/network.toml");
            replace(
                &network,
                "[vars]",
                "[vars]\nx = \"{{ .nuon.components.edge.outputs.address }}\"",
            );
        },
        &["dependency cycle: ", "edge → api", "network → edge"],
    ),
    (
        "a missing module",
        |app| fs::remove_dir_all(app.join("modules/cache")).unwrap(),
        &["cache.toml:8:14: the module of `cache` (modules/cache in .) is missing", "try:"],
    ),
    (
        "an unknown function in a template",
        |app| {
            replace(
                &app.join("components/edge.toml"),
                "{{ .nuon.inputs.inputs.tls }}",
                "{{ nope .nuon.install.id }}",
            )
        },
        &["components/edge.toml:13:", "nope"],
    ),
    (
        "an unknown variable in a template",
        |app| replace(&app.join("components/edge.toml"), "inputs.inputs.tls", "inputs.inputs.tsl"),
        &["components/edge.toml:13:", "reads the input `tsl`", "try:"],
    ),
    (
        "an unknown component in a template",
        |app| replace(&app.join("components/edge.toml"), "components.api", "components.ape"),
        &["components/edge.toml:11:", "reads the component `ape`", "try:"],
    ),
    ("no metadata", |app| fs::remove_file(app.join("metadata.toml")).unwrap(), &["metadata.toml"]),
];

#[test]
fn an_invalid_app_is_rejected_with_the_location_and_not_published() {
    let (server, _) = published();
    let before = settled_position(&server);
    for (number, (what, change, texts)) in INVALID_APPS.into_iter().enumerate() {
        let dir = server.dir().join(number.to_string());
        fs::create_dir(&dir).unwrap();
        let app = edge_api(&dir);
        change(&app);
        let (code, message) = server.refused(&["apps", "sync", app.to_str().unwrap()]);
        assert_eq!(code, 2, "{what}: {message}");
        for text in texts {
            assert!(message.contains(text), "{what}: no {text:?} in: {message}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
    assert_eq!(position(&server), before, "something was written");
    assert_eq!(server.cli_json(&["apps", "show", "edge-api"])["version"], 1);
}

fn authorized(server: &Server) -> String {
    format!("Bearer {}", server.owner_token())
}

fn post(server: &Server, path: &str, kind: &str, body: &[u8]) -> HttpResponse {
    let (url, token) = (format!("{}{path}", server.control()), authorized(server));
    call("POST", &url, &[("Authorization", &token), ("Content-Type", kind)], body)
}

/// Builds an archive with one malicious entry.
fn archive(path: &str, kind: tar::EntryType, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    header.set_cksum();
    let mut builder = tar::Builder::new(Vec::new());
    builder.append(&header, content).unwrap();
    builder.into_inner().unwrap()
}

/// Path, type and body of a request; expected status, code and part of the detail.
type Case<'b> = (&'static str, &'static str, &'b [u8], u16, &'static str, &'static str);

#[test]
fn a_malicious_body_is_rejected_by_the_server() {
    let (server, _) = published();
    let before = settled_position(&server);
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    let bomb = zstd::encode_all(std::io::repeat(0).take(65 << 20), 1).unwrap();
    let link = zstd(&archive("app/link", tar::EntryType::Symlink, b""));
    let above = zstd(&archive("app/../../x", tar::EntryType::Regular, b"x"));
    let absolute = zstd(&archive("/etc/cron.d/x", tar::EntryType::Regular, b"x"));
    let unfinished = zstd(&archive("app/metadata.toml", tar::EntryType::Regular, b"version = "));
    let long = vec![b'x'; (64 << 20) + 1];
    let sync = "/v1/apps/edge-api/sync";
    let cases: [Case; 12] = [
        (sync, "application/zstd", b"not zstd", 422, "invalid", "not valid zstd"),
        (sync, "application/zstd", &zstd(b"not tar"), 422, "invalid", ""),
        (sync, "application/zstd", &link, 422, "invalid", "app/link"),
        (sync, "application/zstd", &above, 422, "invalid", "app/../../x"),
        (sync, "application/zstd", &absolute, 422, "invalid", "/etc/cron.d/x"),
        (sync, "application/zstd", &unfinished, 422, "invalid", "metadata.toml"),
        (sync, "application/zstd", &bomb, 413, "too_large", "67108864"),
        (sync, "application/zstd", &long, 413, "too_large", ""),
        (sync, "text/plain", b"x", 415, "unsupported_media_type", "application/zstd"),
        ("/v1/installs", "application/json", b"{\n \"app\": ", 400, "invalid_json", "line 2"),
        ("/v1/installs", "application/json", br#"{"ap": "x"}"#, 400, "invalid_json", "`ap`"),
        ("/v1/installs", "application/json", &long[..3 << 20], 413, "too_large", ""),
    ];
    for (path, kind, body, status, code, text) in cases {
        let response = post(&server, path, kind, body);
        assert_eq!((response.status, response.code().as_str()), (status, code), "{response:?}");
        assert!(response.body.contains(text), "no {text:?} in: {response:?}");
        assert!(
            response.headers.to_lowercase().contains("application/problem+json"),
            "{response:?}"
        );
    }
    assert_eq!(position(&server), before, "something was written");
}

#[test]
fn invalid_inputs_and_used_names_are_rejected_and_create_nothing() {
    let (server, _) = published();
    server.cli_json(&["installs", "create", "edge-api", "acme", "--input", "company=Acme"]);
    let before = settled_position(&server);
    let create = |name: &'static str, more: &[&'static str]| {
        server.refused(&[&["installs", "create", "edge-api", name], more].concat())
    };
    let company = "company=Beta";
    for (name, inputs, code, texts) in [
        ("beta", &["--input", "domain=x"][..], 2, ["company", "required"]),
        ("beta", &["--input", company, "--input", "replicas=many"], 2, ["replicas", "number"]),
        ("beta", &["--input", company, "--input", "tls=perhaps"], 2, ["tls", "true or false"]),
        ("beta", &["--input", company, "--input", "compani=x"], 2, ["compani", "did you mean"]),
        ("Not A Name", &["--input", company], 2, ["Not A Name", "name"]),
        ("acme", &["--input", company], 4, ["acme", "name_taken"]),
        ("beta", &["--input", company, "--version", "7"], 3, ["7", "not_found"]),
    ] {
        let (exit, output) = create(name, inputs);
        assert_eq!(exit, code, "{inputs:?}: {output}");
        assert!(texts.iter().all(|text| output.contains(text)), "{texts:?}: {output}");
    }
    let (exit, message) = server.refused(&["installs", "create", "edge-app", "beta"]);
    assert!(exit == 3 && message.contains("edge-app"), "{message}");
    let (exit, message) =
        server.refused(&["installs", "set-inputs", "acme", "--input", "replicas=x"]);
    assert!(exit == 2 && message.contains("replicas"), "{message}");
    assert_eq!(position(&server), before, "something was written");
}

#[test]
fn missing_and_wrong_tokens_are_rejected() {
    let (server, _) = published();
    let created =
        server.cli_json(&["installs", "create", "edge-api", "acme", "--input", "company=Acme"]);
    let enrolment = created["enrolment"]["token"].as_str().unwrap().to_string();
    let make = |more: &[&str]| {
        let made = server.cli_json(&[&["tokens", "create", "--role", "viewer"], more].concat());
        (made["id"].as_str().unwrap().to_string(), made["token"].as_str().unwrap().to_string())
    };
    let (viewer, revoked, short) = (make(&[]), make(&[]), make(&["--expires-in", "1s"]));
    server.cli_json(&["tokens", "revoke", &revoked.0]);
    let ask = |method: &str, url: &str, token: Option<&str>, body: &str| {
        let authorization = format!("Bearer {}", token.unwrap_or_default());
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(token.map(|_| ("Authorization", authorization.as_str())));
        call(method, url, &headers, body.as_bytes())
    };
    let whoami = format!("{}/v1/whoami", server.control());
    until("the token to expire", TIMEOUT, || ask("GET", &whoami, Some(&short.1), "").status == 401);
    let before = settled_position(&server);
    let (control, runner) = (server.control(), server.runner());
    let (whoami, installs) = (format!("{control}/v1/whoami"), format!("{control}/v1/installs"));
    let (poll, tokens) = (format!("{runner}/runner/v1/poll"), format!("{control}/v1/tokens"));
    let owner = server.owner_token();
    let install =
        json!({"app": "edge-api", "name": "beta", "inputs": {"company": "B"}}).to_string();
    let more = json!({"role": "owner"}).to_string();
    for (method, url, token, body, status, code) in [
        ("GET", &whoami, None, "", 401, "token_missing"),
        ("GET", &whoami, Some("stead_nobody_has_this"), "", 401, "token_unknown"),
        ("GET", &whoami, Some(&short.1), "", 401, "token_expired"),
        ("GET", &whoami, Some(&revoked.1), "", 401, "token_revoked"),
        ("GET", &whoami, Some(&enrolment), "", 401, "token_type_mismatch"),
        ("POST", &poll, Some(&owner), "{}", 401, "token_type_mismatch"),
        ("POST", &poll, Some(&enrolment), "{}", 401, "token_type_mismatch"),
        ("POST", &poll, None, "{}", 401, "token_missing"),
        ("POST", &installs, Some(&viewer.1), &install, 403, "forbidden"),
        ("POST", &tokens, Some(&viewer.1), &more, 403, "forbidden"),
        ("GET", &tokens, Some(&viewer.1), "", 403, "forbidden"),
    ] {
        let response = ask(method, url, token, body);
        assert_eq!(
            (response.status, response.code().as_str()),
            (status, code),
            "{url}: {response:?}"
        );
        let is_in_response = token.is_some_and(|token| response.body.contains(token));
        assert!(!is_in_response, "the token is in the response: {response:?}");
    }
    assert_eq!(position(&server), before, "something was written");
}

#[test]
fn approvals_of_another_plan_or_without_permission_are_rejected() {
    if !terraform_or_skip() {
        return;
    }
    let (server, _) = published();
    let created =
        server.cli_json(&["installs", "create", "edge-api", "acme", "--input", "company=Acme"]);
    let runner =
        Runner::start(&server, "customer", created["enrolment"]["token"].as_str().unwrap());
    let viewer = server.cli_json(&["tokens", "create", "--role", "viewer"]);
    let mut run = Value::Null;
    until("a plan that waits", TIMEOUT, || {
        let shown = server.stead().args(["runs", "show", "acme"]).output().unwrap();
        run = serde_json::from_slice(&shown.stdout).unwrap_or_default();
        run["state"] == "waiting_for_approval"
    });
    let sandbox = step(&run, "sandbox");
    let digest = sandbox["plan"]["digest"].as_str().unwrap();
    let before = settled_position(&server);

    let other = format!("sha256:{}", "0".repeat(64));
    let args = ["runs", "approve", "acme", "--step", "sandbox", "--reason", "x", "--digest"];
    let (code, message) = server.refused(&[&args[..], &[&other]].concat());
    assert_eq!(code, 4, "{message}");
    assert!(message.contains("approval_stale") && message.contains(digest), "{message}");
    assert!(message.contains("try: read the current plan"), "{message}");

    let url = format!("{}/v1/runs/{}/approve", server.control(), run["id"].as_str().unwrap());
    let authorization = format!("Bearer {}", viewer["token"].as_str().unwrap());
    let headers = [("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
    let body = json!({"step": sandbox["id"], "digest": digest, "reason": "x"}).to_string();
    let response = call("POST", &url, &headers, body.as_bytes());
    assert_eq!((response.status, response.code().as_str()), (403, "forbidden"), "{response:?}");
    let body = json!({"step": sandbox["id"], "digest": digest, "reason": " "}).to_string();
    let response = post(
        &server,
        url.strip_prefix(server.control()).unwrap(),
        "application/json",
        body.as_bytes(),
    );
    assert_eq!((response.status, response.code().as_str()), (422, "invalid"), "{response:?}");
    assert_eq!(position(&server), before, "something was written");
    assert!(runner.ledger().is_empty(), "something was applied");

    // A plan that was already denied cannot be approved or denied again.
    let deny = ["runs", "deny", "acme", "--step", "sandbox", "--reason", "not today", "--digest"];
    let (code, message) = server.refused(&[&deny[..], &[&other]].concat());
    assert!(code == 4 && message.contains("approval_stale"), "{code} {message}");
    assert_eq!(position(&server), before, "something was written");
    server.cli_json(&[&deny[..], &[digest]].concat());
    let before = settled_position(&server);
    let (code, message) = server.refused(&[&args[..], &[digest]].concat());
    assert_eq!(code, 4, "{message}");
    assert_eq!(position(&server), before, "something was written");
    assert!(runner.ledger().is_empty(), "something was applied");
}
