// Tests the dashboard in Chromium as a user works with it. The argument is JSON with the URL of a server, a login code
// and the token of its owner, and the directory of the tools. With `screenshots`, writes pictures of the pages there.
// The parent process kills and restarts the server when a line of the output requests it.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { logs } from "./logs.mjs";
import { tasks } from "./tasks.mjs";

const setup = JSON.parse(process.argv[2]);
const require = createRequire(join(setup.tools, "index.js"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const { base } = setup;

const problems = [];
let cases = 0;
async function test(name, body) {
  cases += 1;
  const started = Date.now();
  try {
    await body();
    console.log(`ok ${name} (${Date.now() - started} ms)`);
  } catch (error) {
    problems.push(`${name}: ${error.message}`);
    console.log(`FAILED ${name}: ${error.stack}`);
  }
}
function check(condition, message) { if (!condition) throw new Error(message); }
async function until(what, body, limit = 30_000) {
  const end = Date.now() + limit;
  for (;;) {
    const value = await body();
    if (value) return value;
    check(Date.now() < end, `timeout: ${what}`);
    await new Promise((resume) => setTimeout(resume, 100));
  }
}
async function api(method, path, body) {
  const headers = { authorization: `Bearer ${setup.token}`, "content-type": "application/json" };
  const response = await fetch(base + path, { method, headers, body: body && JSON.stringify(body) });
  check(response.ok, `${method} ${path}: ${response.status} ${await response.clone().text()}`);
  return response.json();
}

const replies = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
async function server(verb) {
  console.log(`request: ${verb}`);
  const { value } = await replies.next();
  check(value === "done", `${verb}: ${value}`);
}

const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const browser = await chromium.launch({ executablePath: setup.chromium ?? "/usr/bin/chromium", args });

// A page that records script errors, violations of the security policy, and requests elsewhere.
async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce", ...options });
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (e) => console.error(`CSP: ${e.violatedDirective} ${e.blockedURI}`));
  });
  const page = await context.newPage();
  page.on("pageerror", (error) => problems.push(`script error: ${error.message}`));
  page.on("console", (message) => {
    const expected = page.expected?.some((text) => message.text().includes(text));
    if (message.type() === "error" && !expected) problems.push(`console: ${message.text()} (${page.url()})`);
  });
  page.on("request", (request) => { if (!request.url().startsWith(base)) problems.push(`request elsewhere: ${request.url()}`); });
  page.on("dialog", (dialog) => { problems.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  return page;
}

const page = await open();
const newestRun = async () => (await api("GET", "/v1/runs?limit=1")).items[0];
const runOf = async (id) => api("GET", `/v1/runs/${id}`);
const isLive = () => page.locator(".status[data-state=live]").waitFor();

await test("the link of stead up logs in and leaves no code in the address", async () => {
  await page.goto(`${base}/ui/login#code=${setup.code}`);
  await page.waitForURL(`${base}/ui/`);
  await page.getByRole("heading", { name: "Home" }).waitFor();
  check(!(await page.evaluate(() => document.cookie)), "a script can read the cookie");
});
if (problems.length > 0) process.exit(1);

await test("the first Tab reaches the link to the content", async () => {
  await page.keyboard.press("Tab");
  const focused = await page.evaluate(() => document.activeElement.textContent);
  check(focused === "Skip to content", focused);
  await page.keyboard.press("Enter");
  check((await page.evaluate(() => document.activeElement.id)) === "main", "the focus is not in the content");
});

let run;
await test("a waiting plan is approved from Home with three activations", async () => {
  run = (await newestRun()).id;
  const waiting = page.getByRole("region", { name: "Waiting for approval" });
  await waiting.getByRole("link", { name: "provision" }).first().click();
  const form = page.locator("form[data-plan]").first();
  await form.getByLabel("Reason").fill("reviewed in the browser");
  await form.getByRole("button", { name: /^Approve/ }).click();
  await page.getByText("reviewed in the browser").waitFor();
  check(page.url().includes(`/ui/runs/${run}?min_position=`), page.url());
});

await test("the page follows the run without a reload", async () => {
  await page.evaluate(() => { window.marker = 1; });
  await isLive();
  await until("the next plan", async () => (await page.locator("form[data-plan]").count()) > 0, 60_000);
  check(await page.evaluate(() => window.marker), "the page was loaded again");
});

await test("typed input and focus survive an update of the page", async () => {
  const reason = page.locator("form[data-plan] input[name=reason]").first();
  await reason.click();
  await page.keyboard.type("half a rea");
  const before = await page.locator("main").getAttribute("data-position");
  await api("POST", "/v1/tokens", { name: "Another event", role: "viewer" });
  await until("the update", async () => (await page.locator("main").getAttribute("data-position")) !== before);
  await page.keyboard.type("son");
  check((await reason.inputValue()) === "half a reason", await reason.inputValue());
});

await test("a plan that was decided elsewhere disables its form and keeps the text", async () => {
  const form = page.locator("form[data-plan]").first();
  const [step, digest] = await form.evaluate((form) => [form.elements.step.value, form.elements.digest.value]);
  await api("POST", `/v1/runs/${run}/approve`, { step, digest, reason: "decided by another user" });
  await page.getByText("This plan changed, was approved or denied").waitFor();
  const reason = form.locator("input[name=reason]");
  check((await reason.isDisabled()) && (await reason.inputValue()) === "half a reason", "the form is enabled or empty");
});

await test("rows that enter a list wait for the user", async () => {
  const list = await page.context().newPage();
  await list.goto(`${base}/ui/installs`);
  await list.locator(".status[data-state=live]").waitFor();
  await api("POST", "/v1/installs", { app: "edge-api", name: "globex", inputs: { company: "Globex" } });
  await list.getByRole("button", { name: /Show \d+ change/ }).waitFor();
  check((await list.getByRole("link", { name: "globex" }).count()) === 0, "the row entered by itself");
  await list.getByRole("button", { name: /Show \d+ change/ }).click();
  await list.getByRole("link", { name: "globex" }).waitFor();
  await list.close();
});

await test("ten tabs stay live over plain HTTP", async () => {
  const tabs = [];
  for (let n = 0; n < 10; n += 1) tabs.push(await page.context().newPage());
  for (const tab of tabs) await tab.goto(`${base}/ui/runs`);
  for (const tab of tabs) await tab.locator(".status[data-state=live]").waitFor();
  for (const tab of tabs) await tab.close();
});

// Approves each plan by the API until the run has this state.
async function approveUntil(run, done) {
  await until("the run", async () => {
    const now = await runOf(run);
    for (const step of now.dag.filter((step) => step.state === "waiting_for_approval")) {
      await api("POST", `/v1/runs/${run}/approve`, { step: step.id, digest: step.plan.digest, reason: "test" }).catch(() => {});
    }
    return done(now);
  }, 120_000);
}
const tools = { page, open, base, api, check, test, until, approveUntil, newestRun };

let job;
await test("the log of a running job grows without a reload", async () => {
  await approveUntil(run, async () => {
    const running = await api("GET", `/v1/jobs?run=${run}&state=running`);
    job = running.items.find((job) => job.kind === "apply")?.id;
    return job;
  });
  await page.goto(`${base}/ui/jobs/${job}`);
  await page.evaluate(() => { window.marker = 1; });
  await page.locator(".badge", { hasText: "succeeded" }).waitFor({ timeout: 60_000 });
  await until("output", async () => (await page.locator("#log .record").count()) > 3);
  check(await page.evaluate(() => window.marker), "the page was loaded again");
});

const { position: created } = (await api("GET", "/v1/audit/events?type=install.created&limit=1")).items[0];
await approveUntil(run, (now) => now.state === "succeeded");
const long = await logs({ ...tools, run });

const install = (await api("GET", "/v1/installs/acme")).id;
const application = (await api("GET", "/v1/apps")).items[0].id;
const build = (await api("GET", "/v1/builds")).items[0].id;
const runner = (await api("GET", "/v1/runners")).items.find((of) => of.mode === "install").id;
// A task that begins on Home. Each activation counts, typing does not.
async function task(name, steps) {
  await test(`${name} takes at most four activations from Home`, async () => {
    await page.goto(`${base}/ui/`);
    let activations = 0;
    await steps(async (locator) => { activations += 1; await locator.click(); });
    check(activations <= 4, `${activations} activations`);
    console.log(`activations: ${JSON.stringify({ [name]: activations })}`);
  });
}
const section = (name) => page.getByRole("navigation", { name: "Main" }).getByRole("link", { name, exact: true });
const main = page.getByRole("main");

await task("finding who approved a change", async (activate) => {
  await activate(section("Audit"));
  await page.getByLabel("Type", { exact: true }).fill("run.approved");
  await page.getByLabel("From time or position").fill("today");
  await activate(page.getByRole("button", { name: "Filter" }));
  await main.getByRole("row").filter({ hasText: "run.approved" }).locator("td.actor").first().waitFor();
});
await task("showing an install as it was", async (activate) => {
  await activate(section("Installs"));
  await activate(main.getByRole("link", { name: "acme", exact: true }));
  await page.getByLabel(/log position/).fill(String(created + 60));
  await activate(page.getByRole("button", { name: "Show", exact: true }));
  await page.getByText("Earlier state.").waitFor();
});
await task("finding an install", async (activate) => {
  await activate(section("Installs"));
  await isLive();
  // The list follows the text, and the address has the filter.
  await page.getByLabel("Name", { exact: true }).pressSequentially("CME");
  await until("the list", async () => (await main.getByRole("link", { name: "globex", exact: true }).count()) === 0);
  check(new URL(page.url()).searchParams.get("search") === "CME", page.url());
  await activate(main.getByRole("link", { name: "acme", exact: true }));
  await page.getByRole("heading", { name: "acme" }).waitFor();
});
await task("downloading a proof", async (activate) => {
  await activate(section("Installs"));
  await activate(main.getByRole("link", { name: "acme", exact: true }));
  await activate(page.getByRole("link", { name: "Download a proof of this install" }));
  await page.getByText("stead audit check").waitFor();
  const download = page.waitForEvent("download");
  await activate(page.getByRole("link", { name: /^Download the proof/ }));
  const proof = JSON.parse(readFileSync(await (await download).path(), "utf8"));
  check(proof.events.length > 10, `${proof.events.length} events`);
});

const pages = {
  home: "/ui/", installs: "/ui/installs", install: `/ui/installs/${install}`, "install-as-of": `/ui/installs/${install}?as_of=${created + 60}`,
  runs: "/ui/runs", run: `/ui/runs/${run}`, job: `/ui/jobs/${job}`, apps: "/ui/apps", app: `/ui/apps/${application}`,
  change: `/ui/installs/${install}/change`, builds: `/ui/apps/${application}/builds`, build: `/ui/builds/${build}`,
  "new-install": `/ui/apps/${application}/new-install`, settings: "/ui/settings",
  runners: "/ui/runners", runner: `/ui/runners/${runner}`, audit: "/ui/audit", "audit-diff": "/ui/audit/diff?from=0",
  proofs: `/ui/audit/proofs?of=${install}`, "run-as-of": `/ui/runs/${run}/as-of?as_of=${created + 60}`,
  "app-as-of": `/ui/apps/${application}/as-of?as_of=now`, plugins: "/ui/plugins", bulk: "/ui/bulk",
  "bulk-preview": `/ui/bulk/preview?do=drain&install=${install}`,
  login: "/ui/login", problem: "/ui/runs/run_1",
  find: "/ui/find?q=a", catalog: "/ui/_components", attempts: `/ui/jobs/${job}/attempts`,
  "long-log": `/ui/jobs/${long}?after=0`, "log-search": `/ui/jobs/${long}?q=row`, webhooks: "/ui/settings/webhooks",
  webhook: "/ui/settings/webhooks/chat", upgrade: `/ui/installs/${install}/upgrade?to=2`, diff: `/ui/apps/${application}/diff?from=1&to=2`,
};
await api("PUT", "/v1/webhooks/chat", { url: "https://chat.example/hook", topics: ["run.failed"], format: "slack" });
const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
// Without rules, checks all of level AA.
async function findings(rules = null) {
  const runOnly = rules ? { type: "rule", values: rules } : { type: "tag", values: tags };
  const run = `axe.run(document, ${JSON.stringify({ runOnly, resultTypes: ["violations"] })})`;
  // All rows of a log have the same structure, and axe takes minutes for a thousand.
  await page.evaluate(() => { for (const row of [...document.querySelectorAll(".record")].slice(50)) row.remove(); });
  // The security policy forbids the script in the page, so it runs as if the browser did.
  const client = await page.context().newCDPSession(page);
  await client.send("Runtime.evaluate", { expression: axe });
  const { result } = await client.send("Runtime.evaluate", { expression: `${run}.then((r) => JSON.stringify(r.violations))`, awaitPromise: true });
  await client.detach();
  return JSON.parse(result.value).map((v) => `${v.id}: ${v.nodes.map((n) => `${n.html} ${n.failureSummary}`).slice(0, 3).join(" | ")}`);
}
const groups = {
  "home, lists and plugins": ["home", "installs", "runs", "apps", "runners", "plugins"],
  "pages of an install": ["install", "install-as-of", "change", "upgrade", "new-install", "bulk", "bulk-preview"],
  "pages of a run and its jobs": ["run", "run-as-of", "job", "attempts", "long-log", "log-search"],
  "pages of an app": ["app", "app-as-of", "builds", "build", "diff"],
  "audit pages and a runner": ["audit", "audit-diff", "proofs", "runner"],
  "settings, login and the catalog": ["settings", "webhooks", "webhook", "login", "problem", "find", "catalog"],
};
check(Object.values(groups).flat().sort().join() === Object.keys(pages).sort().join(), "a page is in no group");
let checked = 0;
for (const [group, names] of Object.entries(groups)) {
  await test(`${group} have no accessibility findings in either theme and fit a telephone`, async () => {
    const found = [];
    for (const name of names) {
      page.expected = name === "problem" ? ["404"] : [];
      await page.goto(base + pages[name]);
      await page.evaluate(() => { for (const fold of document.querySelectorAll("main details")) fold.open = true; });
      // Themes differ in colors only, and a load of a page takes longer than its check.
      for (const [colorScheme, rules] of [["light", null], ["dark", ["color-contrast"]]]) {
        await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
        found.push(...(await findings(rules)).map((finding) => `${name}, ${colorScheme}: ${finding}`));
        checked += 1;
      }
      await page.setViewportSize({ width: 390, height: 800 });
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      if (width > 390) found.push(`${name} is ${width} px wide in a window of 390 px`);
      await page.setViewportSize({ width: 1280, height: 800 });
    }
    check(found.length === 0, found.join("\n"));
  });
}
console.log(`axe: ${checked} pages checked`);
await page.emulateMedia({ colorScheme: "light" });

await test("a hostile input is text", async () => {
  await page.goto(base + pages.install);
  await page.getByText("<img src=x onerror=alert(1)>").first().waitFor();
});

await test("a user without script logs in, denies a plan and logs out", async () => {
  const plain = await open({ javaScriptEnabled: false });
  await plain.goto(`${base}/ui/runs`);
  await plain.getByLabel("Token or one-time code").fill(setup.token);
  await plain.getByRole("button", { name: "Log in" }).click();
  await plain.getByRole("heading", { name: "Runs" }).waitFor();
  ({ run } = await api("PATCH", "/v1/installs/acme", { inputs: { tls: "false" }, reason: "test" }));
  await until("a plan", async () => (await runOf(run)).dag.some((step) => step.state === "waiting_for_approval"), 60_000);
  await plain.goto(`${base}/ui/runs/${run}`);
  await plain.getByLabel("Reason", { exact: true }).first().fill("not now");
  await plain.getByRole("button", { name: /^Deny/ }).first().click();
  await plain.getByText("not now").first().waitFor();
  await plain.getByRole("button", { name: "Log out" }).click();
  await plain.getByRole("heading", { name: "Log in to Stead" }).waitFor();
  await plain.goto(`${base}/ui/runs`);
  await plain.getByText("your session has ended").waitFor();
});

await test("a new token is shown once, and not in the address", async () => {
  await page.goto(`${base}/ui/settings`);
  await page.getByLabel("Name of the user or service").fill("Ann");
  await page.getByRole("button", { name: "Create the token" }).click();
  const token = await page.locator("code.secret").textContent();
  check(token.startsWith("stead_") && !page.url().includes(token), page.url());
  await page.getByRole("link", { name: "Back to the settings" }).click();
  await page.getByRole("heading", { name: "Users and tokens" }).waitFor();
  check(!(await page.content()).includes(token), "the settings show the token");
});

await test("a user without script creates an install and gets the command of its customer", async () => {
  const plain = await open({ javaScriptEnabled: false });
  await plain.goto(`${base}/ui/apps/${application}`);
  await plain.getByLabel("Token or one-time code").fill(setup.token);
  await plain.getByRole("button", { name: "Log in" }).click();
  await plain.getByRole("button", { name: "Create an install" }).click();
  await plain.getByLabel(/^Name of the install/).fill("initech");
  await plain.getByLabel(/^company/).fill("<b>Initech");
  await plain.getByRole("button", { name: "Create the install" }).click();
  await plain.getByText("Created install initech.").waitFor();
  const token = await plain.locator("code.secret").textContent();
  check(token.startsWith("stead_enrol_") && !plain.url().includes(token), plain.url());
  await plain.getByRole("link", { name: "Open the install" }).click();
  await plain.getByText("<b>Initech").first().waitFor();
});

await test("the palette opens an install by keyboard alone", async () => {
  await page.goto(`${base}/ui/`);
  await page.keyboard.press("Control+k");
  await page.getByRole("option", { name: "Installs" }).waitFor();
  check((await findings()).length === 0, (await findings()).join("\n"));
  await page.keyboard.type("globex");
  await page.getByRole("option", { name: /globex/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "globex" }).waitFor();
  await page.keyboard.press("Control+k");
  await page.keyboard.press("Escape");
  await until("the palette closes", async () => (await page.locator("dialog").count()) === 0);
});

await test("single keys open pages until the user switches them off", async () => {
  await page.goto(`${base}/ui/`);
  await page.keyboard.press("g");
  await page.keyboard.press("r");
  await page.waitForURL(`${base}/ui/runs`);
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keys" }).waitFor();
  check((await findings()).length === 0, (await findings()).join("\n"));
  await page.getByLabel("Single keys").uncheck();
  await page.keyboard.press("Escape");
  await page.reload();
  await page.keyboard.press("g");
  await page.keyboard.press("i");
  await page.keyboard.press("?");
  await page.waitForTimeout(300);
  check(page.url() === `${base}/ui/runs` && (await page.locator("dialog").count()) === 0, "a single key had an effect");
  await page.evaluate(() => localStorage.clear());
});

await test("nothing moves for a user who prefers no motion", async () => {
  const moving = () => page.evaluate(() => {
    const badge = Object.assign(document.createElement("span"), { className: "badge run", textContent: "running" });
    document.querySelector("main").append(badge);
    return getComputedStyle(badge, "::before").animationName;
  });
  check((await moving()) === "none", await moving());
  await page.emulateMedia({ reducedMotion: "no-preference" });
  check((await moving()) === "pulse", "the check finds no motion at all");
  await page.emulateMedia({ reducedMotion: "reduce" });
});

await test("a page of a revoked session says so and keeps the text", async () => {
  const token = await api("POST", "/v1/tokens", { name: "Ann", role: "approver" });
  const other = await open();
  other.expected = ["401", "MIME type", "EventSource"];
  await other.goto(`${base}/ui/login`);
  await other.getByLabel("Token or one-time code").fill(token.token);
  await other.getByRole("button", { name: "Log in" }).click();
  await other.goto(`${base}/ui/find`);
  await other.goto(`${base}/ui/installs`);
  await other.locator(".status[data-state=live]").waitFor();
  await other.locator("main input[type=search]").first().fill("typed");
  await api("DELETE", `/v1/tokens/${token.id}`);
  await other.getByText("Your session has ended").waitFor();
  check((await other.locator("main input[type=search]").first().inputValue()) === "typed", "the text is lost");
  await other.context().close();
});

await test("a page of a user who loses a role says so and keeps the text", async () => {
  ({ run } = await api("PATCH", "/v1/installs/acme", { inputs: { replicas: "2" }, reason: "test" }));
  await until("a plan", async () => (await runOf(run)).dag.some((step) => step.state === "waiting_for_approval"), 60_000);
  const token = await api("POST", "/v1/tokens", { name: "Bob", role: "approver" });
  const other = await open();
  await other.goto(`${base}/ui/login`);
  await other.getByLabel("Token or one-time code").fill(token.token);
  await other.getByRole("button", { name: "Log in" }).click();
  await other.getByRole("heading", { name: "Home" }).waitFor();
  await other.goto(`${base}/ui/runs/${run}`);
  await other.locator(".status[data-state=live]").waitFor();
  const reason = other.locator("form[data-plan] input[name=reason]").first();
  await reason.fill("typed");
  await api("PUT", `/v1/principals/${token.principal}/roles/viewer`, {});
  await api("DELETE", `/v1/principals/${token.principal}/roles/approver`);
  await other.getByText("or your role changed").first().waitFor();
  check((await reason.isDisabled()) && (await reason.inputValue()) === "typed", "the form is enabled or empty");
  await other.context().close();
});

await test("a plan is approved by keyboard alone", async () => {
  const focused = () => page.evaluate(() => {
    const at = document.activeElement;
    return `${at.tagName} ${at.closest("section, form")?.id} ${at.name ?? ""} ${at.textContent.trim()}`;
  });
  // Moves the focus with Tab until an element matches, as a user without a pointer does.
  const tabTo = async (pattern) => {
    for (let n = 0; n < 200; n += 1) {
      await page.keyboard.press("Tab");
      if (pattern.test(await focused())) return;
    }
    check(false, `no Tab reaches ${pattern}`);
  };
  await page.goto(`${base}/ui/`);
  await tabTo(/^A waiting .*input update/);
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/ui\/runs\//);
  await tabTo(/^INPUT decide-\S+ reason/);
  await page.keyboard.type("approved without a pointer");
  await tabTo(/^BUTTON decide-\S+ decision Approve/);
  await page.keyboard.press("Enter");
  await page.getByText("approved without a pointer").first().waitFor();
  await approveUntil(run, (now) => now.state === "succeeded");
});

await test("a node of the graph opens the outputs of its component", async () => {
  await page.goto(base + pages.install);
  await page.locator(".graph [data-node=database]").hover();
  check((await page.locator(".graph [data-node].on").count()) >= 3, "the dependencies are not lit");
  await page.locator(".graph [data-node=database]").click();
  await page.locator("#values-database").waitFor();
});

await test("a short id is copied as a whole, and a command without its prompt", async () => {
  const copied = async (locator) => {
    await locator.evaluate((e) => getSelection().selectAllChildren(e));
    await page.keyboard.press("Control+c");
    await page.getByLabel("Name", { exact: true }).fill("");
    await page.getByLabel("Name", { exact: true }).press("Control+v");
    return page.getByLabel("Name", { exact: true }).inputValue();
  };
  await page.goto(`${base}/ui/installs?search=no-such-install`);
  // Otherwise, the list follows the pasted text and replaces the code.
  await page.locator("form[data-follow]").evaluate((form) => form.removeAttribute("data-follow"));
  check((await copied(page.locator("code.command"))).startsWith("stead installs create"), "the command has its prompt");
  await page.locator("code.command").evaluate((command) => {
    command.replaceWith(Object.assign(document.createElement("code"), { title: "run_0123456789", textContent: "run_…56789" }));
  });
  check((await copied(page.locator("code[title]"))) === "run_0123456789", "the id is short");
});

await test("an open page recovers from a kill of the server without a reload", async () => {
  page.expected = ["ERR_", "Failed to load", "EventSource", "503"];
  await page.goto(`${base}/ui/installs`);
  await isLive();
  await page.evaluate(() => { window.marker = 1; });
  const name = page.getByLabel("Name", { exact: true });
  await name.fill("umb");
  await page.getByText("No installs match.").waitFor();
  await server("kill");
  await page.locator(".status[data-state=reconnecting]").waitFor();
  await server("restart");
  await isLive();
  await api("POST", "/v1/installs", { app: "edge-api", name: "umbrella", inputs: { company: "Umbrella" } });
  await page.getByRole("link", { name: "umbrella" }).waitFor();
  check((await name.inputValue()) === "umb" && (await page.evaluate(() => window.marker)), "the text is lost, or the page was loaded again");
  page.expected = [];
});

await tasks(tools);

await test("an open page continues when another build replaces the server", async () => {
  page.expected = ["ERR_", "Failed to load", "EventSource", "503"];
  await page.goto(`${base}/ui/installs`);
  await isLive();
  const style = () => page.locator("link[rel=stylesheet]").getAttribute("href");
  const before = await style();
  await page.evaluate(() => { window.marker = 1; });
  const name = page.getByLabel("Name", { exact: true });
  await name.fill("hoo");
  await page.getByText("No installs match.").waitFor();
  await server("upgrade");
  await page.getByText("Stead was updated").waitFor();
  await api("POST", "/v1/installs", { app: "edge-api", name: "hooli", inputs: { company: "Hooli" } });
  await page.getByRole("button", { name: /Show \d+ change/ }).or(page.getByRole("link", { name: "hooli" })).first().waitFor();
  check((await style()) !== before, "the page has the earlier style sheet");
  check((await name.inputValue()) === "hoo" && (await page.evaluate(() => window.marker)), "the text is lost, or the page was loaded again");
  await page.reload();
  await isLive();
  await page.getByRole("link", { name: "hooli" }).waitFor();
  page.expected = [];
});

if (setup.screenshots) {
  for (const [width, height] of [[1440, 900], [1024, 768], [390, 844]]) {
    await page.setViewportSize({ width, height });
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      for (const [name, path] of Object.entries(pages)) {
        page.expected = ["404"];
        await page.goto(base + path);
        await page.waitForTimeout(300);
        const shot = join(setup.screenshots, `${name}-${width}-${colorScheme}.png`);
        // The navigation has the height of the window, so a long page needs a high one.
        const isLong = ["audit", "job", "long-log", "log-search"].includes(name);
        const content = await page.evaluate(() => document.documentElement.scrollHeight);
        await page.setViewportSize({ width, height: isLong ? height : Math.max(height, content) });
        await page.screenshot({ path: shot });
        await page.setViewportSize({ width, height });
      }
    }
  }
}

await browser.close();
const unique = [...new Set(problems)];
console.log(`${cases} cases, ${unique.length} problems`);
for (const problem of unique) console.log(problem);
process.exit(unique.length === 0 ? 0 : 1);
