// Parser of pages for the other modules. The security policy allows one policy of this name.
const policy = window.trustedTypes?.createPolicy("stead", { createHTML: (html) => html });
window.stead = {
  parse: (html) => new DOMParser().parseFromString(policy ? policy.createHTML(html) : html, "text/html"),
};
