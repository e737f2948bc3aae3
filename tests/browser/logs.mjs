// Logs: a job that writes many lines, with colors and markup. Returns the id of that job.
export async function logs({ page, base, api, check, test, until, run }) {
  const { items } = await api("GET", `/v1/jobs?run=${run}&limit=100`);
  const job = items.find((job) => job.kind === "apply" && job.name === "sandbox").id;
  const lines = () => page.locator("#log .record").count();

  await test("a long log opens at its end, and earlier lines are added above", async () => {
    await page.goto(`${base}/ui/jobs/${job}`);
    check((await lines()) === 1000, `${await lines()} lines`);
    await page.getByText("<b>markup</b> of a job").waitFor();
    const color = await page.locator("#log .c1", { hasText: "red text" }).evaluate((e) => getComputedStyle(e).color);
    check(color !== (await page.locator("body").evaluate((e) => getComputedStyle(e).color)), "the text has no color");
    await page.locator("#first-part").getByRole("link", { name: "Earlier" }).click();
    await until("the earlier lines", async () => (await lines()) === 2000);
    const numbers = await page.locator("#log .record").evaluateAll((all) => all.map((row) => Number(row.id.slice(1))));
    check(numbers.every((number, at) => at === 0 || number === numbers[at - 1] + 1), "the lines have gaps");
  });

  await test("the end of a page of a log loads the next lines", async () => {
    await page.goto(`${base}/ui/jobs/${job}?attempt=1&after=0`);
    await page.mouse.wheel(0, 100);
    await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
    await until("the next lines", async () => (await lines()) > 1000);
  });

  await test("a line has an address that opens it", async () => {
    await page.goto(`${base}/ui/jobs/${job}?attempt=1&after=1000`);
    await page.locator("#L1500 > a").click();
    check(page.url().endsWith("attempt=1&line=1500#L1500"), page.url());
    await page.reload();
    await until("the line to be in view", async () => {
      const box = await page.locator("#L1500").boundingBox();
      return box.y > 0 && box.y < 800;
    });
  });

  await test("a search finds lines and opens one", async () => {
    await page.goto(`${base}/ui/jobs/${job}`);
    await page.getByLabel("Text in the log").fill("ROW 777 ");
    await page.keyboard.press("Enter");
    const found = page.getByRole("region", { name: "Matches" });
    await found.locator("mark", { hasText: "row 777" }).first().waitFor();
    await found.locator(".record a").first().click();
    await page.locator("#log .record:target", { hasText: "row 777" }).waitFor();
  });
  return job;
}
