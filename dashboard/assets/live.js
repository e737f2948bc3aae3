// Keeps the page current: waits for newer events or log output, requests the page again, and morphs it. `log.js` has the
// rows of a log.
const { parse } = window.stead;
const status = () => document.querySelector("[data-live]");
const topic = () => status()?.dataset.live;
const keys = () => status()?.dataset.keys ?? "";
// A click on the number of a line changes the address, and must not end the updates.
let address = location.href;
const position = () => Number(document.querySelector("main")?.dataset.position ?? 0);

let fetching = false;
let pending = false;
let applyRows = false;
let changes = 0;
let ended = false;
let lost = false;

// Says how current the page is: live, or as of the last response.
let shown = new Date();
function show(state) {
  const element = status();
  if (!element) return;
  const time = shown.toTimeString().slice(0, 5);
  const text = state === "live" ? "live" : `${state} · as of ${time}`;
  if (element.dataset.state === state && element.dataset.shown === `${text} ${changes}`) return;
  element.dataset.state = state;
  element.dataset.shown = `${text} ${changes}`;
  element.textContent = text;
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
  if (old.dataset?.live !== undefined && fresh?.dataset?.live !== undefined) {
    old.dataset.live = fresh.dataset.live;
    old.dataset.keys = fresh.dataset.keys;
    return false;
  }
  if (old.id === "log") { if (fresh) window.stead.log?.append(old, fresh); return false; }
  if (old.matches?.("nav.pages")) return false;
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
      note.textContent = "This plan changed, was approved or denied, or your role changed. Reload the page to see it.";
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
    const url = new URL(address);
    const last = document.querySelector("#log")?.dataset.last;
    if (last) url.searchParams.set("since", last);
    const response = await fetch(url, { headers: { "stead-refresh": "1" } });
    if (response.redirected && new URL(response.url).pathname === "/ui/login") {
      const link = document.createElement("a");
      Object.assign(link, { href: "/ui/login", target: "_blank", textContent: "log in again" });
      status()?.replaceChildren("Your session has ended: ", link, "; this page keeps your text");
      disconnect();
      ended = true;
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
    window.stead.log?.trim();
    shown = new Date();
    show(lost ? "reconnecting" : "live");
    if (main.querySelector("#log")?.dataset.more) pending = true;
    if (source && topic() !== source.topic) { disconnect(); connect(); }
    else if (source && keys() !== source.keys) follow(source);
  } catch {
    show("reconnecting");
  } finally {
    fetching = false;
    if (pending) { pending = false; setTimeout(refresh, 500); }
  }
}

// Tabs share one connection, for events and for logs: the tab that holds the lock reads it and tells the others. Each tab
// names the log that it shows. A hidden tab takes no part.
const channel = "BroadcastChannel" in window ? new BroadcastChannel("stead-live") : null;
const tab = crypto.getRandomValues(new Uint32Array(2)).join("-");
let source = null;

// A page changes with its keys: types and streams of the log of events. `*` stands for all of them.
function moved({ position: at, changed, log }) {
  if (ended) return;
  lost = false;
  const own = keys().split(",");
  const concerns = log ? log === topic() : at > position() && (changed === "*" || changed.split(",").some((key) => own.includes(key)));
  if (concerns) refresh(); else show("live");
}

// What the tabs show: the log of each, and the keys of all of them.
function query(tabs) {
  const logs = [...new Set([...tabs.values()].map((of) => of.log))].filter(Boolean).slice(-8).sort();
  const all = [...new Set([...tabs.values()].flatMap((of) => of.keys.split(",")))].sort().join();
  // A very long address could be rejected. Without keys, every event wakes the tabs.
  return new URLSearchParams({ ...(logs.length > 0 && { logs }), ...(all.length < 6000 && { keys: all }) }).toString();
}

function lead(current) {
  const tabs = new Map();
  const tell = (message) => { channel?.postMessage(message); moved(message); };
  const open = () => {
    current.events?.close();
    current.query = query(tabs);
    const events = new EventSource(`/ui/live?${current.query}`);
    current.events = events;
    events.addEventListener("open", () => { lost = false; show("live"); });
    events.addEventListener("error", () => {
      lost = true;
      channel?.postMessage({ lost });
      show("reconnecting");
      // The browser does not retry after a rejection: the session has ended, or the server restarts.
      if (events.readyState === EventSource.CLOSED) setTimeout(() => {
        if (source?.events === events) { disconnect(); connect(); }
      }, 2000);
    });
    events.addEventListener("position", ({ data }) => {
      const [at, changed] = data.split(" ");
      tell({ position: Number(at), changed });
    });
    events.addEventListener("log", ({ data }) => tell({ log: data }));
  };
  current.wants = (who, shown) => {
    if (shown) tabs.set(who, shown); else tabs.delete(who);
    if (current.events && query(tabs) !== current.query) { clearTimeout(current.timer); current.timer = setTimeout(open, 100); }
  };
  current.wants(tab, { log: current.topic, keys: current.keys });
  open();
  channel?.postMessage({ asks: true });
}

channel?.addEventListener("message", ({ data }) => {
  if (!source) return;
  if (data.asks) say(source);
  else if (data.lost) { lost = true; show("reconnecting"); }
  else if (data.tab) source.wants?.(data.tab, data.shown);
  else moved(data);
});
function say(of) { channel?.postMessage({ tab, shown: of && { log: of.topic, keys: of.keys } }); }

// Tells the tab that leads which keys this page has now.
function follow(current) {
  current.keys = keys();
  say(current);
  current.wants?.(tab, { log: current.topic, keys: current.keys });
}

function connect() {
  if (source || ended || document.hidden || topic() === undefined) return;
  const current = { topic: topic(), keys: keys(), events: null, release: null, abort: new AbortController() };
  source = current;
  say(current);
  if (navigator.locks && channel) {
    navigator.locks.request("stead-live", { signal: current.abort.signal }, () => new Promise((release) => {
      current.release = release;
      lead(current);
    })).catch(() => {});
  } else lead(current);
  // The page may be older than the connection of another tab, or than the last connection of this one.
  refresh();
}

function disconnect() {
  if (source) say(null);
  clearTimeout(source?.timer);
  source?.events?.close();
  source?.release?.();
  source?.abort.abort();
  source = null;
}

// A list follows the text of its search while the user types it.
let typing = null;
document.addEventListener("input", ({ target }) => {
  const form = target.form;
  if (!form?.matches("main form[data-follow]") || topic() === undefined) return;
  clearTimeout(typing);
  typing = setTimeout(() => {
    const fields = [...new FormData(form)].filter(([, value]) => value !== "");
    address = `${form.action}?${new URLSearchParams(fields)}`;
    history.replaceState(null, "", address);
    applyRows = true;
    refresh();
  }, 200);
});

document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
addEventListener("pagehide", disconnect);
addEventListener("pageshow", connect);
connect();
