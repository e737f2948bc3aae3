//! Pages of the dashboard at 10,000 installs and 10⁶ events: time of the server, bytes over the wire, time from a
//! change to a page with it, and the cost of 1,000 open pages.
//!
//! The time from a change to a page excludes the browser, which parses and morphs the page.
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request,
    body::Incoming,
    header::{ACCEPT, CONTENT_TYPE, COOKIE, ORIGIN, SET_COOKIE},
};
use measure::Conditions;
use serde_json::Value;

use crate::{
    api_client::ApiClient,
    command_line::{BenchOptions, WorkDir, block_on, check_arguments},
    database::Database,
    scale::{growing_log::GrowingLog, table::Table},
    server_process::ServerProcess,
    wire::Wire,
};

const USAGE: &str = "stead-bench-dashboard [--quick] [--json]";

/// Install of the generated history.
const INSTALL: &str = "ins_00000000000000000000000008";

/// Entry point of `scripts/bench dashboard`.
pub fn main() {
    check_arguments(USAGE);
    block_on(run(BenchOptions::read()));
}

async fn run(options: BenchOptions) {
    let work_dir = WorkDir::new();
    let database = Database::start(&work_dir.of("cluster")).await;
    let data = work_dir.of("server");
    let mut table = Table::default();
    let mut grown = GrowingLog::start(&database, &data, options.choose(200, 10_000)).await;
    grown.to(options.choose(10_000, 1_000_000), &mut table).await;
    let serving = ServerProcess::start(&database, &data, None).await;
    let browser = Browser::login(&serving).await;
    measure_pages(&browser, options.choose(5, 200), &mut table).await;
    measure_first_page(&browser, &mut table).await;
    measure_changes(&browser, options.choose(5, 100), &mut table).await;
    let open = options.choose(50, 1_000);
    measure_open_pages(&browser, &serving, &database, (open, options.period), &mut table).await;
    let conditions = Conditions::of(database.root(), 1, Duration::ZERO).await;
    drop((serving, grown));
    database.stop().await;
    match options.json {
        true => println!("{:#}", table.json(&conditions)),
        false => println!("{}\n{}", conditions.markdown(), table.markdown()),
    }
}

/// Browser with a session of the owner.
struct Browser {
    client: ApiClient,
    cookie: String,
}

impl Browser {
    async fn login(serving: &ServerProcess) -> Browser {
        let client = serving.client();
        let form = Bytes::from(format!("secret={}", client.token()));
        let login = Request::post("/ui/login")
            .header(ORIGIN, &client.control)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::new(form))
            .unwrap();
        let response = client.wire().send(login).await.unwrap();
        let cookie = response.headers[SET_COOKIE].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        Browser { client, cookie }
    }

    fn get(&self, path: &str) -> Request<Full<Bytes>> {
        Request::get(path).header(COOKIE, &self.cookie).body(Full::default()).unwrap()
    }

    async fn page(&self, wire: &mut Wire, path: &str) -> String {
        let response = wire.send(self.get(path)).await.unwrap().ok();
        String::from_utf8(response.body.to_vec()).unwrap()
    }

    /// Opens the stream of one browser.
    async fn live(&self) -> (Wire, Incoming) {
        let mut wire = self.client.wire();
        let mut request = self.get("/ui/live");
        request.headers_mut().insert(ACCEPT, "text/event-stream".parse().unwrap());
        let response = wire.open(request).await.unwrap();
        assert!(response.status().is_success(), "{}", response.status());
        (wire, response.into_body())
    }

    async fn first_id(&self, path: &str) -> String {
        let response = self.client.wire().send(self.client.get(path)).await.unwrap().ok();
        let items: Value = response.json();
        items["items"][0]["id"].as_str().unwrap().to_owned()
    }
}

/// Every page that the generated history fills.
async fn paths(browser: &Browser) -> Vec<String> {
    let run = browser.first_id("/v1/runs?limit=1").await;
    let job = browser.first_id("/v1/jobs?limit=1").await;
    let runner = browser.first_id("/v1/runners?limit=1").await;
    let app = browser.first_id("/v1/apps?limit=1").await;
    let lists = ["", "installs", "runs", "runs?state=succeeded", "apps", "runners", "audit"];
    let own = [
        "settings".to_owned(),
        "settings/webhooks".to_owned(),
        "find?q=acme-9".to_owned(),
        format!("installs/{INSTALL}"),
        format!("installs/{INSTALL}?as_of=5000"),
        format!("installs/{INSTALL}/change"),
        format!("runs/{run}"),
        format!("jobs/{job}"),
        format!("apps/{app}"),
        format!("apps/{app}/builds"),
        format!("runners/{runner}"),
    ];
    let paths = lists.into_iter().map(str::to_owned).chain(own);
    paths.map(|path| format!("/ui/{path}")).collect()
}

async fn measure_pages(browser: &Browser, number: usize, table: &mut Table) {
    for path in paths(browser).await {
        let (mut wire, mut times) = (browser.client.wire(), Vec::new());
        // The first request opens the connection.
        for _ in 0..=number {
            let began = Instant::now();
            browser.page(&mut wire, &path).await;
            times.push(began.elapsed());
        }
        table.times(&format!("GET {path}"), times.split_off(1));
    }
}

/// Bytes of the first page with all files that it names.
async fn measure_first_page(browser: &Browser, table: &mut Table) {
    let mut wire = browser.client.wire();
    let home = browser.page(&mut wire, "/ui/").await;
    let mut bytes = home.len();
    for asset in home.split("\"/ui/assets/").skip(1) {
        let path = format!("/ui/assets/{}", asset.split('"').next().unwrap());
        let mut request = browser.get(&path);
        request.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
        bytes += wire.send(request).await.unwrap().ok().body.len();
    }
    table.figure("first page with style and scripts", "KB", bytes as f64 / 1e3);
}

/// Time from the request of a change to the page that shows it.
async fn measure_changes(browser: &Browser, number: usize, table: &mut Table) {
    let (_wire, mut stream) = browser.live().await;
    stream.frame().await.unwrap().unwrap();
    let (mut page, mut commands, mut times) =
        (browser.client.wire(), browser.client.wire(), vec![]);
    for number in 0..number {
        // Two notifications of a page are half a second apart.
        tokio::time::sleep(Duration::from_millis(600)).await;
        let name = format!("change-{number}");
        let body = Bytes::from(format!("{{\"name\":\"{name}\",\"role\":\"viewer\"}}"));
        let began = Instant::now();
        commands
            .send(browser.client.send("/v1/tokens", "application/json", body))
            .await
            .unwrap()
            .ok();
        loop {
            stream.frame().await.unwrap().unwrap();
            if browser.page(&mut page, "/ui/settings").await.contains(&name) {
                break;
            }
        }
        times.push(began.elapsed());
    }
    table.times("change requested → page with it received", times);
}

/// Memory and statements of open pages without a change.
async fn measure_open_pages(
    browser: &Browser,
    serving: &ServerProcess,
    database: &Database,
    (number, period): (usize, Duration),
    table: &mut Table,
) {
    let before = serving.resident();
    let mut pages = Vec::new();
    for _ in 0..number {
        let mut page = browser.live().await;
        page.1.frame().await.unwrap().unwrap();
        pages.push(page);
    }
    let each = serving.resident().saturating_sub(before) as f64 / number as f64;
    table.figure("memory of an open page", "KiB", each / 1024.0);
    let idle = async || {
        let before = database.statements().await;
        tokio::time::sleep(period).await;
        database.statements().await - before
    };
    let with_pages = idle().await;
    drop(pages);
    let without = idle().await;
    let unit = database.unit();
    table.figure(
        &format!("{unit} in {period:?} with {number} open pages"),
        unit,
        with_pages as f64,
    );
    table.figure(&format!("{unit} in {period:?} without open pages"), unit, without as f64);
}
