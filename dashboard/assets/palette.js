// Command palette (Ctrl K), keys for single actions, and their list (?). The entries are those of the page `/ui/find`.
const { parse } = window.stead;

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// A dialog that leaves the page when it is closed. The browser returns the focus.
function show(dialog) {
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.showModal();
}

function palette() {
  if (document.querySelector("dialog[open]")) return;
  const input = element("input", { type: "search", maxLength: 100, autocomplete: "off", placeholder: "Page, install, app or id" });
  const list = element("ul", { className: "found", id: "palette-found" });
  const usage = "Arrow keys select, Enter opens, Esc closes";
  const hint = element("span", { textContent: usage });
  hint.setAttribute("role", "status");
  const more = element("button", { type: "button", textContent: "Keys" });
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Found pages");
  for (const [name, value] of Object.entries({ role: "combobox", "aria-label": "Go to", "aria-expanded": "true", "aria-controls": list.id }))
    input.setAttribute(name, value);
  const dialog = element("dialog", { className: "palette" }, input, list, element("p", { className: "hint" }, hint, more));
  dialog.setAttribute("aria-label", "Go to");
  more.addEventListener("click", () => { dialog.close(); dialog.remove(); keys(); });
  let selected = 0;
  let request = null;
  let shown = null;
  const options = () => [...list.querySelectorAll("[role=option]")];
  const select = (to) => {
    const all = options();
    if (all.length === 0) { input.removeAttribute("aria-activedescendant"); return; }
    selected = (to + all.length) % all.length;
    all.forEach((option, n) => option.setAttribute("aria-selected", String(n === selected)));
    input.setAttribute("aria-activedescendant", all[selected].id);
    all[selected].scrollIntoView({ block: "nearest" });
  };
  const find = async () => {
    request?.abort();
    request = new AbortController();
    const { signal } = request;
    const text = input.value;
    try {
      const response = await fetch(`/ui/find?q=${encodeURIComponent(text.trim())}`, { signal });
      if (response.redirected) { location.href = "/ui/login"; return; }
      if (!response.ok) throw new Error(response.statusText);
      const found = [...parse(await response.text()).querySelectorAll("#found > li")];
      found.forEach((item, n) => {
        item.setAttribute("role", "presentation");
        const link = item.firstElementChild;
        for (const [name, value] of Object.entries({ role: "option", id: `palette-${n}`, tabindex: "-1" })) link.setAttribute(name, value);
      });
      list.replaceChildren(...found);
      shown = text;
      hint.textContent = found.length === 0 ? "No page, install or app has this name" : usage;
      select(0);
    } catch (error) {
      if (error.name !== "AbortError") hint.textContent = "The server does not respond; try again";
    }
  };
  let timer;
  input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(find, 100); });
  input.addEventListener("keydown", async (event) => {
    if (event.key === "ArrowDown") select(selected + 1);
    else if (event.key === "ArrowUp") select(selected - 1);
    else if (event.key === "Enter") {
      // The list of a text that was typed quickly may still be on its way.
      event.preventDefault();
      clearTimeout(timer);
      if (shown !== input.value) await find();
      options()[selected]?.click();
    } else return;
    event.preventDefault();
  });
  show(dialog);
  input.focus();
  find();
}

const enabled = () => { try { return localStorage.getItem("stead-keys") !== "off"; } catch { return true; } };

function keys() {
  if (document.querySelector("dialog[open]")) return;
  const single = element("input", { type: "checkbox", checked: enabled() });
  single.addEventListener("change", () => { try { localStorage.setItem("stead-keys", single.checked ? "on" : "off"); } catch { /* no storage */ } });
  const rows = [[["Ctrl", "K"], "Go to a page, an install, an app or an id"], [["?"], "Show these keys"], [["/"], "Search on this page"]];
  for (const link of document.querySelectorAll("nav [data-key]")) rows.push([["g", link.dataset.key], link.textContent.trim()]);
  const list = element("dl");
  for (const [combination, text] of rows) {
    const term = element("dt");
    combination.forEach((key, n) => term.append(n > 0 ? " " : "", element("kbd", { textContent: key })));
    list.append(term, element("dd", { textContent: text }));
  }
  const close = element("button", { type: "button", textContent: "Close" });
  const dialog = element("dialog", { className: "keys" }, element("h2", { textContent: "Keys" }), list,
    element("label", { className: "check" }, single, "Single keys, without Ctrl"), element("div", {}, close));
  dialog.setAttribute("aria-label", "Keys");
  close.addEventListener("click", () => dialog.close());
  show(dialog);
}

let prefix = 0;
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    palette();
    return;
  }
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping || document.querySelector("dialog[open]") || !enabled()) return;
  if (event.key === "?") { event.preventDefault(); keys(); return; }
  const follows = Date.now() - prefix < 1500;
  prefix = 0;
  if (follows) document.querySelector(`nav [data-key="${CSS.escape(event.key)}"]`)?.click();
  else if (event.key === "g") prefix = Date.now();
  else if (event.key === "/") {
    const search = document.querySelector("main input[type=search]");
    if (search) { event.preventDefault(); search.focus(); } else { event.preventDefault(); palette(); }
  }
});
document.querySelector("a.go")?.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  palette();
});

// A page shows the end of an id. A copy of it is the whole id.
document.addEventListener("copy", (event) => {
  const selection = getSelection();
  const text = selection.toString().trim();
  const short = [...document.querySelectorAll("code[title]")].find((code) => code.textContent === text && selection.containsNode(code, true));
  if (!short) return;
  event.clipboardData.setData("text/plain", short.title);
  event.preventDefault();
});
