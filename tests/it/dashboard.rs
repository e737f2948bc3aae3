//! Tests the dashboard of a real server without a browser: login, roles, changes and their limits. `browser.rs` starts
//! a browser.

mod browser;
mod coverage;

use std::time::Duration;

use reqwest::{StatusCode, header, redirect::Policy};
use tests::{Runner, Server, edge_api, finish, stdout_of, terraform_or_skip, until_some};
use tokio::runtime::Runtime;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Browser without script.
struct Browser {
    base: String,
    http: reqwest::Client,
    runtime: Runtime,
    cookie: Option<String>,
}

/// Response to a request.
struct Opened {
    status: StatusCode,
    location: String,
    text: String,
}

impl Browser {
    fn new(server: &Server) -> Browser {
        // Another test may have set the provider.
        let _first = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().redirect(Policy::none()).build().unwrap();
        Browser {
            base: server.control().into(),
            http,
            runtime: Runtime::new().unwrap(),
            cookie: None,
        }
    }

    /// Starts a browser that is logged in with this secret.
    fn logged_in(server: &Server, secret: &str) -> Browser {
        let mut browser = Browser::new(server);
        let response = browser.post("/ui/login", &[("secret", secret)]);
        assert_eq!(response.status, StatusCode::SEE_OTHER, "{}", response.text);
        assert!(browser.cookie.is_some());
        browser
    }

    fn get(&mut self, path: &str) -> Opened {
        self.send(self.http.get(format!("{}{path}", self.base)))
    }

    fn post(&mut self, path: &str, form: &[(&str, &str)]) -> Opened {
        let request = self.http.post(format!("{}{path}", self.base)).form(form);
        self.send(request.header(header::ORIGIN, &self.base))
    }

    fn send(&mut self, request: reqwest::RequestBuilder) -> Opened {
        let request = match &self.cookie {
            Some(cookie) => request.header(header::COOKIE, cookie),
            None => request,
        };
        let (opened, cookie) = self.runtime.block_on(async {
            let response = request.send().await.unwrap();
            let text =
                |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            let (cookie, location) = (text(header::SET_COOKIE), text(header::LOCATION));
            let status = response.status();
            (
                Opened {
                    status,
                    location: location.unwrap_or_default(),
                    text: response.text().await.unwrap(),
                },
                cookie,
            )
        });
        if let Some(cookie) = cookie {
            self.cookie = cookie.split(';').next().map(str::to_owned);
        }
        opened
    }
}

/// Returns the value of the first field with this name after `from`.
fn field(html: &str, from: &str, name: &str) -> String {
    let (_, form) = html.split_once(from).unwrap_or_else(|| panic!("no {from} in {html}"));
    let (_, rest) = form.split_once(&format!("name=\"{name}\" value=\"")).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

/// Returns the login code that `stead up` printed.
fn code(server: &Server) -> String {
    let output = server.log();
    let (_, rest) =
        output.split_once("/ui/login#code=").unwrap_or_else(|| panic!("no link: {output}"));
    rest.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn the_link_of_stead_up_logs_in_once_and_is_no_token() {
    let server = Server::up();
    let code = code(&server);
    assert!(!server.log().contains(&server.owner_token()));
    let with_token = tests::call(
        "GET",
        &format!("{}/v1/whoami", server.control()),
        &[("authorization", &format!("Bearer {code}"))],
        b"",
    );
    assert_eq!(with_token.status, 401);

    let mut browser = Browser::logged_in(&server, &code);
    let home = browser.get("/ui/");
    assert_eq!(home.status, StatusCode::OK);
    assert!(home.text.contains("Nothing needs attention"), "{}", home.text);

    let again = Browser::new(&server).post("/ui/login", &[("secret", &code)]);
    assert_eq!(again.status, StatusCode::UNAUTHORIZED);
    assert!(again.text.contains("the code was used"), "{}", again.text);
}

#[test]
fn a_revoked_token_ends_its_sessions() {
    let server = Server::up();
    let created = server.cli_json(&["tokens", "create", "--name", "Ann", "--role", "viewer"]);
    let mut browser = Browser::logged_in(&server, created["token"].as_str().unwrap());
    let installs = browser.get("/ui/installs");
    assert_eq!(installs.status, StatusCode::OK);
    // A viewer sees neither the audit log nor a link to it.
    assert!(!installs.text.contains("/ui/audit"));
    assert_eq!(browser.get("/ui/audit").status, StatusCode::FORBIDDEN);

    server.cli_json(&["tokens", "revoke", created["id"].as_str().unwrap()]);
    let ended = browser.get("/ui/installs?app=shop");
    assert_eq!(ended.status, StatusCode::SEE_OTHER);
    assert_eq!(ended.location, "/ui/login?next=%2Fui%2Finstalls%3Fapp%3Dshop");
    let login = browser.get(&ended.location);
    assert!(login.text.contains("your session has ended"), "{}", login.text);
}

#[test]
fn a_plan_is_approved_without_script_and_only_once() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    server.cli_json(&["apps", "sync", edge_api(server.dir()).to_str().unwrap(), "--wait"]);
    let create = ["installs", "create", "edge-api", "acme", "--input", "company=<b>&amp;Acme"];
    let created = server.cli_json(&create);
    let _runner =
        Runner::start(&server, "customer", created["enrolment"]["token"].as_str().unwrap());
    let approver = server.cli_json(&["tokens", "create", "--name", "Ann", "--role", "approver"]);
    let viewer = server.cli_json(&["tokens", "create", "--name", "Vic", "--role", "viewer"]);
    let mut approver = Browser::logged_in(&server, approver["token"].as_str().unwrap());
    let mut viewer = Browser::logged_in(&server, viewer["token"].as_str().unwrap());
    let mut owner = Browser::logged_in(&server, &server.owner_token());

    let page = until_some("a plan that waits", TIMEOUT, || {
        let home = approver.get("/ui/").text;
        let (_, waiting) = home.split_once("id=\"waiting-run_")?;
        let run = format!("/ui/runs/run_{}", waiting.split('"').next()?);
        Some((run.clone(), approver.get(&run).text)).filter(|(_, page)| page.contains("/decide\""))
    });
    let (path, page) = page;
    // A viewer has no form, and the server rejects one that the viewer sends.
    let seen = viewer.get(&path).text;
    assert!(seen.contains("Only approvers and owners") && !seen.contains("/decide\""), "{seen}");
    let form = |html: &str, owner_of_token: &str| -> Vec<(&'static str, String)> {
        let at = "/decide\"";
        let of = |name| field(html, at, name);
        vec![
            ("form_token", owner_of_token.to_owned()),
            ("idempotency_key", of("idempotency_key")),
            ("step", of("step")),
            ("digest", of("digest")),
            ("reason", "reviewed".to_owned()),
            ("decision", "approve".to_owned()),
        ]
    };
    let send = |browser: &mut Browser, form: &[(&'static str, String)]| {
        let form: Vec<_> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        browser.post(&format!("{path}/decide"), &form)
    };
    let rejected = send(&mut viewer, &form(&page, &field(&seen, "/ui/logout", "form_token")));
    assert_eq!(rejected.status, StatusCode::FORBIDDEN, "{}", rejected.text);

    // Another digest than that of the plan is rejected.
    let mut other = form(&page, &field(&page, "/decide\"", "form_token"));
    other[3].1 = format!("sha256:{}", "0".repeat(64));
    other[1].1 = "another".to_owned();
    assert!(send(&mut approver, &other).status.is_client_error());

    // The same form sent twice takes effect once.
    let own = form(&page, &field(&page, "/decide\"", "form_token"));
    let (first, second) = (send(&mut approver, &own), send(&mut approver, &own));
    assert_eq!((first.status, second.status), (StatusCode::SEE_OTHER, StatusCode::SEE_OTHER));
    assert_eq!(first.location, second.location);
    let after = approver.get(&first.location);
    assert_eq!(after.status, StatusCode::OK);
    assert!(after.text.contains("approved by Ann"), "{}", after.text);
    let step = own[2].1.as_str();
    let events = server.cli_json(&["audit", "events", "--type", "run.approved"]);
    let of_step = |event: &&serde_json::Value| event["payload"]["step"] == step;
    let events: Vec<_> = events.as_array().unwrap().iter().filter(of_step).collect();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["metadata"]["client"], "dashboard");
    // Another decision with the key of the first one is an error, and not a silent success.
    let mut changed = own.clone();
    changed[5].1 = "deny".to_owned();
    let rejected = send(&mut approver, &changed);
    assert!(rejected.status.is_client_error(), "{} {}", rejected.status, rejected.text);

    // The run ends; its jobs have logs, and the install has an earlier state.
    finish(&server, "acme");
    let page = owner.get(&path).text;
    let (_, rest) = page.split_once("href=\"/ui/jobs/").unwrap();
    let job = rest.split('"').next().unwrap();
    let log = owner.get(&format!("/ui/jobs/{job}"));
    assert!(log.text.contains("class=\"record"), "{}", log.text);
    let cli = stdout_of(server.stead_for_people().args(["jobs", "logs", job]));
    assert!(!cli.is_empty());
    let download = owner.get(&format!("/ui/jobs/{job}/attempts/1/log"));
    assert!(
        download.text.lines().count() >= 1 && download.text.starts_with("{\"n\":"),
        "{}",
        download.text
    );
    let install = owner.get("/ui/installs/acme").text;
    assert!(install.contains("&lt;b&gt;&amp;amp;Acme") && !install.contains("<b>"), "{install}");
    let created_at =
        server.cli_json(&["audit", "events", "--type", "install.created"])[0]["position"].clone();
    let earlier = owner.get(&format!("/ui/installs/acme?as_of={created_at}")).text;
    assert!(earlier.contains("Earlier state.") && earlier.contains("not deployed"), "{earlier}");
    let none = owner.get("/ui/installs/acme?as_of=soon");
    assert_eq!(none.status, StatusCode::BAD_REQUEST);

    // The run is shown as it was when its first plan waited, with a link to the present.
    let approved_at = events[0]["position"].as_u64().unwrap();
    let past = owner.get(&format!("{path}/as-of?as_of={}", approved_at - 1)).text;
    assert!(past.contains("waiting for approval") && past.contains("Earlier state."), "{past}");
    assert!(past.contains(&format!("href=\"{path}\"")) && !past.contains("/decide"), "{past}");
    assert_eq!(approver.get(&format!("{path}/as-of?as_of=1")).status, StatusCode::FORBIDDEN);
    let of_job = owner.get(&format!("/ui/jobs/{job}/as-of?as_of=now")).text;
    assert!(of_job.contains("succeeded"), "{of_job}");
    // The comparison names who approved what.
    let compared = owner.get("/ui/audit/diff?from=yesterday&to=&stream=").text;
    assert!(compared.contains("approved by Ann") && compared.contains("reviewed"), "{compared}");

    a_runner_is_drained_in_bulk_and_only_once(&server, &mut owner, created["id"].as_str().unwrap());
}

fn a_runner_is_drained_in_bulk_and_only_once(server: &Server, owner: &mut Browser, install: &str) {
    assert!(owner.get("/ui/bulk?search=ACM").text.contains(install));
    assert!(!owner.get("/ui/bulk?search=other").text.contains(install));
    let url = format!("/ui/bulk/preview?do=drain&install={install}&reason=maintenance");
    let preview = owner.get(&url).text;
    let of = |name: &str| field(&preview, "id=\"bulk\"", name);
    let item = format!("item.{install}");
    let fields = ["form_token", "idempotency_key", "do", item.as_str()];
    let mut form: Vec<(&str, String)> = fields.iter().map(|name| (*name, of(name))).collect();
    form.push(("reason", "maintenance".to_owned()));
    for _ in 0..2 {
        let form: Vec<_> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let done = owner.post("/ui/bulk/change", &form);
        assert!(done.text.contains("All changes were accepted."), "{}", done.text);
    }
    let drained = server.cli_json(&["audit", "events", "--type", "runner.drained"]);
    assert_eq!(drained.as_array().unwrap().len(), 1, "{drained}");
    let csv = owner.get("/ui/installs.csv?search=acme").text;
    assert!(csv.lines().count() == 2 && csv.contains(install), "{csv}");
}
