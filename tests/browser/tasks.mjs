// Tasks of a user, each from Home with its activations counted: clicks and keys that open or send something. Typing, and
// the confirmation of a destruction, do not count. The palette is not used.
export async function tasks({ page, base, api, check, test, until, approveUntil, newestRun }) {
  const counts = {};
  // Performs a task whose steps activate elements of the page.
  const task = (name, limit, steps) => test(`task: ${name}`, async () => {
    await page.goto(`${base}/ui/`);
    let activations = 0;
    await steps(async (target) => { activations += 1; await target.click(); });
    counts[name] = activations;
    check(activations <= limit, `${activations} activations, at most ${limit}`);
  });
  const link = (name) => page.locator("main").getByRole("link", { name }).first();
  const button = (name) => page.locator("main").getByRole("button", { name }).first();
  const section = (name) => page.getByRole("navigation", { name: "Main" }).getByRole("link", { name });
  const approveAll = async (run) => {
    let state;
    await approveUntil(run, (now) => { state = now.state; return ["succeeded", "failed"].includes(state); });
    return state;
  };
  const update = (inputs) => api("PATCH", "/v1/installs/acme", { inputs, reason: "test" });
  const waits = (run) => until("a plan", async () => (await api("GET", `/v1/runs/${run}`)).state === "waiting_for_approval", 60_000);

  const { run: changed } = await update({ replicas: "3", pace_seconds: "0" });
  await waits(changed);
  await task("approve a waiting plan", 4, async (act) => {
    await act(page.getByRole("region", { name: "Waiting for approval" }).getByRole("link", { name: "input update" }));
    await page.getByLabel("Reason", { exact: true }).first().fill("reviewed");
    await act(button(/^Approve/));
    await page.getByText("reviewed").first().waitFor();
  });
  await approveAll(changed);
  // The other tasks need no approvals.
  await api("PATCH", "/v1/installs/acme", { auto_approve: true, reason: "test" });

  // The effect of a component sleeps for this time, which is no valid one.
  const { run: failed } = await update({ replicas: "4", pace_seconds: "-1" });
  check((await approveAll(failed)) === "failed", "the run did not fail");
  await task("find why a run failed", 4, async (act) => {
    await act(page.getByRole("region", { name: "Newest failed runs" }).getByRole("link", { name: "input update" }).first());
    await act(page.locator(".step", { has: page.locator(".badge.fail") }).getByRole("link", { name: /^Log/ }));
    await page.locator("#log").getByText(/sleep: invalid|invalid option|usage: sleep/i).first().waitFor();
  });

  await task("follow a log", 4, async (act) => {
    await act(page.getByRole("region", { name: "Newest runs" }).getByRole("link", { name: "input update" }).first());
    await act(link(/^Log/));
    await page.locator("#log .record").first().waitFor();
  });

  const { run: repaired } = await update({ pace_seconds: "0" });
  await approveAll(repaired);
  await task("compare versions and upgrade", 4, async (act) => {
    await act(section("Installs"));
    await act(link("acme"));
    await page.getByLabel("Version").selectOption("2");
    await act(button("Compare"));
    await page.getByRole("heading", { name: /Upgrade acme to version 2/ }).waitFor();
    await act(button("Upgrade"));
    await page.waitForURL(/\/ui\/runs\//);
  });
  await approveAll((await newestRun()).id);
  await task("roll back", 4, async (act) => {
    await act(section("Installs"));
    await act(link("acme"));
    await page.getByLabel("Version").selectOption("1");
    await act(button("Compare"));
    await act(button(/^Roll back/));
    await page.waitForURL(/\/ui\/runs\//);
  });
  await approveAll((await newestRun()).id);

  await task("revoke a runner", 4, async (act) => {
    await act(section("Runners"));
    await act(page.locator("main tr", { hasText: "acme" }).getByRole("link").first());
    await act(page.locator("main summary", { hasText: "Revoke" }));
    await page.locator("#revoke").getByLabel("Reason").fill("the customer left");
    // This confirms a destruction.
    await page.locator("#revoke").getByRole("button", { name: "Revoke" }).click();
    await page.locator(".badge", { hasText: "revoked" }).first().waitFor();
  });
  console.log(`activations: ${JSON.stringify(counts)}`);
}
