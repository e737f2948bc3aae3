//! Tests branches that move between two versions.
use super::*;

#[test]
fn a_moved_branch_is_published_with_resolve() {
    let git = GitServer::start();
    let (web, db) = (git.repository("acme/web"), git.repository("acme/db"));
    let first = web.commit("main", &[("main.tf", MODULE)]);
    db.commit("main", &[("main.tf", MODULE)]);
    let server = server(&git);
    let app = app(&server, &[("web", "acme/web", ".", None), ("db", "acme/db", ".", Some("main"))]);
    sync(&server, &app);
    let before = builds(&server);
    let second = web.commit("main", &[("main.tf", &MODULE.replace("one", "two"))]);

    // Without --resolve, an unchanged directory changes nothing.
    assert_eq!(sync(&server, &app)["unchanged"], true);
    let resolve = ["apps", "sync", app.to_str().unwrap(), "--resolve", "--wait"];
    let synced = server.cli_json(&resolve);

    assert_eq!((&synced["version"], &synced["unchanged"]), (&2.into(), &false.into()));
    let after = builds(&server);
    assert_eq!(after["web"]["commit"], second.as_str());
    assert!(files(&server, &after["web"])["main.tf"].contains("two"));
    // The other repository has the same commit, so its build reuses the artifact without a job.
    assert_eq!(after["db"]["reused_build"], before["db"]["id"], "{:#}", after["db"]);
    assert_eq!(after["db"]["artifact"], before["db"]["artifact"]);
    assert!(after["db"]["job"].is_null(), "{:#}", after["db"]);
    let diff = server.cli_json(&["apps", "diff", "shop", "--from", "1", "--to", "2"]);
    let changes = diff["changes"].as_array().unwrap();
    let [change] = changes.as_slice() else { panic!("{diff:#}") };
    let field = &change["fields"][0];
    assert_eq!((&change["name"], &field["field"]), (&"web".into(), &"commit".into()), "{diff:#}");
    assert_eq!((&field["before"], &field["after"]), (&first.into(), &second.into()), "{diff:#}");
    assert_eq!(change["fields"][1]["field"], "main.tf", "{diff:#}");
    assert_eq!(change["fields"].as_array().unwrap().len(), 2, "{diff:#}");
}

#[test]
fn only_the_components_of_a_moved_branch_are_planned() {
    if !terraform_or_skip() {
        return;
    }
    let git = GitServer::start();
    let (web, db) = (git.repository("acme/web"), git.repository("acme/db"));
    web.commit("main", &[("main.tf", MODULE)]);
    db.commit("main", &[("main.tf", MODULE)]);
    let server = server(&git);
    let app = app(&server, &[("web", "acme/web", ".", None), ("db", "acme/db", ".", None)]);
    sync(&server, &app);
    let created = server.cli_json(&["installs", "create", "shop", "acme", "--auto-approve"]);
    let _runner =
        Runner::start(&server, "customer", created["enrolment"]["token"].as_str().unwrap());
    until("the provision run", Duration::from_secs(60), || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    succeeded(&server, "acme");
    web.commit("main", &[("main.tf", &MODULE.replace("one", "two"))]);
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--resolve", "--wait"]);

    let diff = server.cli_json(&["apps", "diff", "shop", "--from", "1", "--to", "2"]);
    let plans = diff["impact"][0]["plans"].as_array().unwrap();
    assert_eq!(plans.iter().map(|plan| &plan["name"]).collect::<Vec<_>>(), ["web"], "{diff:#}");
    server.cli_json(&["installs", "upgrade", "acme", "--to", "2"]);
    succeeded(&server, "acme");

    let state = server.cli_json(&["installs", "state", "acme"]);
    assert_eq!(state["nuon"]["components"]["web"]["outputs"]["text"], "two", "{state:#}");
}
