// Fills in the one-time code of the link that `stead up` prints. A fragment is never sent to a server.
const code = new URLSearchParams(location.hash.slice(1)).get("code");
if (code) {
  history.replaceState(null, "", location.pathname + location.search);
  const form = document.querySelector("form");
  form.elements.secret.value = code;
  form.requestSubmit();
}
