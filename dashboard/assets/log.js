// Rows of a job log: adds new and later lines, keeps a bounded number of them, and copies the address of a line.
const MAX_ROWS = 5000;
const { parse } = window.stead;
const log = () => document.querySelector("#log");
const rows = () => document.querySelectorAll("#log .record");
const number = (row) => Number(row.id.slice(1));

// A group continues the fold of the same phase.
const phase = (group) => group?.querySelector(":scope > summary")?.textContent;

function append(old, fresh) {
  if (old.dataset.paused) return;
  const last = Number(old.dataset.last);
  for (const group of [...fresh.children]) {
    const end = old.lastElementChild;
    const isFold = group.matches(".fold");
    const found = isFold ? [...group.querySelectorAll(".record")] : [group];
    const later = found.filter((row) => number(row) > last);
    if (later.length === 0) continue;
    if (isFold && end?.matches(".fold") && phase(end) === phase(group)) end.append(...later);
    else if (isFold) { group.replaceChildren(group.querySelector("summary"), ...later); old.append(group); }
    else old.append(...later);
  }
  old.dataset.last = Math.max(last, Number(fresh.dataset.last));
  old.dataset.total = fresh.dataset.total;
  update();
}

function prepend(old, fresh) {
  const first = number(rows()[0]);
  for (const group of [...fresh.children].reverse()) {
    const begin = old.firstElementChild;
    const isFold = group.matches(".fold");
    const earlier = (isFold ? [...group.querySelectorAll(".record")] : [group]).filter((row) => number(row) < first);
    if (earlier.length === 0) continue;
    if (isFold && begin?.matches(".fold") && phase(begin) === phase(group)) begin.querySelector("summary").after(...earlier);
    else if (isFold) { group.replaceChildren(group.querySelector("summary"), ...earlier); old.prepend(group); }
    else old.prepend(...earlier);
  }
}

// Removes the rows that are furthest from the end that the user reads.
function trim(atStart = true) {
  const all = [...rows()];
  const excess = all.length - MAX_ROWS;
  if (excess <= 0) return;
  for (const row of atStart ? all.slice(0, excess) : all.slice(-excess)) row.remove();
  for (const fold of document.querySelectorAll("#log .fold:not(:has(.record))")) fold.remove();
  log().dataset.last = number([...rows()].at(-1));
  update();
}

// The links around the log name the lines that the page has.
function update() {
  const all = rows();
  if (all.length === 0) return;
  const [first, last, total] = [number(all[0]), number(all[all.length - 1]), Number(log().dataset.total)];
  for (const nav of document.querySelectorAll("nav.pages")) {
    const link = (rel) => nav.querySelector(`[rel~=${rel}]`);
    nav.hidden = first <= 1 && last >= total;
    nav.querySelector(".range").textContent = `Lines ${first} to ${last} of ${Math.max(total, last)}`;
    for (const rel of ["first", "prev"]) link(rel).hidden = first <= 1;
    for (const rel of ["next", "last"]) link(rel).hidden = last >= total;
    link("prev").href = log().dataset.part + Math.max(first - 1001, 0);
    link("next").href = log().dataset.part + last;
  }
}

let loading = false;
async function load(link) {
  if (loading) return;
  loading = true;
  try {
    const response = await fetch(link.href);
    const fresh = response.ok && parse(await response.text()).querySelector("#log");
    if (!fresh) { location.href = link.href; return; }
    if (link.rel === "next") { delete log().dataset.paused; append(log(), fresh); trim(); }
    else {
      // Rows that enter above must not move those that the user reads.
      const [row] = rows();
      const before = row.getBoundingClientRect().top;
      prepend(log(), fresh);
      scrollBy({ top: row.getBoundingClientRect().top - before, behavior: "instant" });
      if (rows().length > MAX_ROWS) log().dataset.paused = "true";
      trim(false);
      update();
    }
  } finally { loading = false; }
}

document.addEventListener("click", (event) => {
  const plain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey;
  const part = event.target.closest?.("nav.pages a[rel=next], nav.pages a[rel=prev]");
  if (part && plain && log()) { event.preventDefault(); load(part); return; }
  const line = event.target.closest?.("#log .record > a");
  if (!line || !plain) return;
  event.preventDefault();
  for (const row of document.querySelectorAll("#log .current")) row.classList.remove("current");
  line.parentElement.classList.add("current");
  history.replaceState(null, "", line.href);
  // A reload then opens the line, and not the last scroll position.
  history.scrollRestoration = "manual";
  navigator.clipboard?.writeText(line.href).then(() => {
    line.dataset.copied = "copied";
    setTimeout(() => delete line.dataset.copied, 1500);
  }, () => {});
});

// A reload keeps the former position of the page, but the address names a line.
function showLine() {
  if (/^#L\d+$/.test(location.hash)) document.getElementById(location.hash.slice(1))?.scrollIntoView({ block: "center" });
}
showLine();
addEventListener("load", showLine);

// Scrolling to the end loads the next lines.
const end = document.querySelector("#last-part");
if (end && log()) {
  let scrolled = false;
  addEventListener("scroll", () => { scrolled = true; }, { passive: true, once: true });
  new IntersectionObserver((entries) => {
    const next = end.querySelector("[rel=next]");
    if (scrolled && next && !next.hidden && entries.some((entry) => entry.isIntersecting)) load(next);
  }, { rootMargin: "600px" }).observe(end);
}
window.stead.log = { append, trim };
