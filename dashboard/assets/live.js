// Keeps the page current: waits for newer events or log output, requests the page again, and morphs it.
const policy = window.trustedTypes?.createPolicy("stead", { createHTML: (html) => html });
const parse = (html) => new DOMParser().parseFromString(policy ? policy.createHTML(html) : html, "text/html");
const status = () => document.querySelector("[data-live]");
const position = () => Number(document.querySelector("main")?.dataset.position ?? 0);

let fetching = false;
let pending = false;
let applyRows = false;
let changes = 0;

function show(state) {
  const element = status();
  if (!element || (element.dataset.state === state && element.dataset.changes === String(changes))) return;
  element.dataset.state = state;
  element.dataset.changes = changes;
  element.textContent = state === "live" ? "live" : state;
  if (changes > 0) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = changes === 1 ? "Show 1 change" : `Show ${changes} changes`;
    button.addEventListener("click", () => { applyRows = true; refresh(); });
    element.append(" ", button);
  }
}

// A field is changed if it differs from what the server sent.
function isChanged(field) {
  if (field instanceof HTMLSelectElement) return [...field.options].some((o) => o.selected !== o.defaultSelected);
  return field.type !== "hidden" && "defaultValue" in field && field.value !== field.defaultValue;
}

// A form that the user works on keeps its values and the focus. If its plan changed, it is disabled.
function keep(old, fresh) {
  if (old.dataset?.live && fresh?.dataset?.live) {
    old.dataset.live = fresh.dataset.live;
    return false;
  }
  if (!(old instanceof HTMLFormElement)) return true;
  // A changed plan never takes the place of the one that the user has read.
  const isReplaced = old.dataset.plan && fresh?.dataset?.plan && fresh.dataset.plan !== old.dataset.plan;
  if (!isReplaced && !old.contains(document.activeElement) && ![...old.elements].some(isChanged)) return true;
  if (old.dataset.plan && fresh?.dataset?.plan !== old.dataset.plan) {
    for (const element of old.elements) element.disabled = true;
    if (!old.querySelector(".stale")) {
      const note = document.createElement("p");
      note.className = "stale";
      note.setAttribute("role", "alert");
      note.textContent = "This plan changed, or was approved or denied. Reload the page to see it.";
      old.append(note);
    }
  }
  return false;
}

// Rows change in place. Rows that enter, leave or change their order wait until the user applies them, so that nothing
// moves under the pointer. Returns the number of waiting changes.
function holdRows(fresh) {
  let held = 0;
  for (const old of document.querySelectorAll("main [data-rows]")) {
    const next = fresh.querySelector(`#${CSS.escape(old.id)}`);
    if (!next) continue;
    const before = [...old.children].map((row) => row.id);
    const after = [...next.children].map((row) => row.id);
    if (before.join() === after.join()) continue;
    const entered = after.filter((id) => !before.includes(id)).length;
    const left = before.filter((id) => !after.includes(id)).length;
    held += entered + left || 1;
    const rows = new Map([...next.children].map((row) => [row.id, row]));
    next.replaceChildren(...[...old.children].map((row) => rows.get(row.id) ?? fresh.importNode(row, true)));
  }
  return held;
}

async function refresh() {
  if (fetching) { pending = true; return; }
  fetching = true;
  try {
    const response = await fetch(location.href, { headers: { "stead-refresh": "1" } });
    if (response.redirected && new URL(response.url).pathname === "/ui/login") {
      document.querySelector("main [data-live]")?.replaceChildren("logged out; open another tab to log in");
      disconnect();
      return;
    }
    if (!response.ok) throw new Error(response.statusText);
    const fresh = parse(await response.text());
    const main = fresh.querySelector("main");
    const log = document.querySelector("#log");
    const atEnd = log && innerHeight + scrollY >= document.documentElement.scrollHeight - 40;
    changes = applyRows ? 0 : holdRows(main);
    applyRows = false;
    const open = new Set([...document.querySelectorAll("main details[open][id]")].map((e) => e.id));
    Idiomorph.morph(document.querySelector("main"), main, {
      morphStyle: "outerHTML",
      ignoreActiveValue: true,
      callbacks: {
        beforeNodeMorphed: (old, next) => keep(old, next),
        beforeNodeRemoved: (old) => keep(old, null),
      },
    });
    for (const id of open) { const element = document.getElementById(id); if (element) element.open = true; }
    if (atEnd) scrollTo(0, document.documentElement.scrollHeight);
    show("live");
    if (source && status()?.dataset.live !== source.url) { disconnect(); connect(); }
  } catch {
    show("reconnecting");
  } finally {
    fetching = false;
    if (pending) { pending = false; setTimeout(refresh, 500); }
  }
}

// Tabs share one connection for events: the tab that holds the lock reads it and tells the others. The log of a job has
// its own connection. A hidden tab has none.
const channel = "BroadcastChannel" in window ? new BroadcastChannel("stead-live") : null;
channel?.addEventListener("message", ({ data }) => { if (source?.url === "/ui/live") moved(data); });
let source = null;

function moved(at) {
  if (at > position()) refresh(); else show("live");
}

function open(url, onEvent) {
  const events = new EventSource(url);
  events.addEventListener("open", () => show("live"));
  events.addEventListener("error", () => {
    show("reconnecting");
    // The browser does not retry after a rejection: the session has ended, or the server restarts.
    if (events.readyState === EventSource.CLOSED) setTimeout(() => {
      if (source?.events === events) { disconnect(); connect(); refresh(); }
    }, 2000);
  });
  events.addEventListener("position", (event) => onEvent(Number(event.data)));
  events.addEventListener("log", refresh);
  return events;
}

function connect() {
  const url = status()?.dataset.live;
  if (source || document.hidden || !url) return;
  const current = { url, events: null, release: null, abort: new AbortController() };
  source = current;
  if (url !== "/ui/live" || !navigator.locks || !channel) { current.events = open(url, moved); return; }
  navigator.locks.request("stead-live", { signal: current.abort.signal }, () => new Promise((release) => {
    current.release = release;
    current.events = open(url, (at) => { channel.postMessage(at); moved(at); });
  })).catch(() => {});
  // Another tab may already read the events.
  refresh();
}

function disconnect() {
  source?.events?.close();
  source?.release?.();
  source?.abort.abort();
  source = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
addEventListener("pagehide", disconnect);
addEventListener("pageshow", connect);
connect();
