// The form to sign in by, who has, and signing out.

import { h, patch } from "./dom.js";

const JSON_KIND = { "content-type": "application/json" };

async function told(path, given) {
  const more = given === undefined ? {} : { method: "POST", headers: JSON_KIND, body: JSON.stringify(given) };
  const answer = await fetch(path, more);
  const isJson = answer.headers.get("content-type")?.startsWith("application/json");
  const body = isJson ? await answer.json() : {};
  return { isGood: answer.ok, ...body };
}

function field(name, words, attributes) {
  const input = h("input", { id: name, name, required: true, autocapitalize: "off", spellcheck: "false", ...attributes });
  return h("p", {}, h("label", { for: name }, words), input);
}

// What is typed stays while the form is told anew; `done` is called once somebody has signed in.
export function form(done) {
  async function submit(event) {
    event.preventDefault();
    const typed = event.target;
    const button = typed.querySelector("button");
    const trouble = typed.querySelector("[role=alert]");
    button.disabled = true;
    try {
      const answer = await told("/api/sign-in", { user: typed.elements.user.value, password: typed.elements.password.value });
      typed.elements.password.value = "";
      trouble.textContent = answer.isGood ? "" : (answer.error ?? "The server does not answer.");
      if (answer.isGood) done(answer.user);
      else typed.elements.password.focus();
    } catch {
      trouble.textContent = "The server does not answer.";
    } finally {
      button.disabled = false;
    }
  }
  return [
    h("h1", { tabindex: "-1" }, "Sign in"),
    h("p", {}, "With the name and the password of a user of this log."),
    h(
      "form",
      { class: "sign-in", onsubmit: submit },
      field("user", "Name", { type: "text", autocomplete: "username" }),
      field("password", "Password", { type: "password", autocomplete: "current-password" }),
      h("p", { class: "bad", role: "alert" }),
      h("button", { type: "submit" }, "Sign in"),
    ),
  ];
}

export async function user() {
  const session = await told("/api/session");
  return session.user ?? null;
}

export function show(name, done) {
  async function leave() {
    await told("/api/sign-out", {});
    done();
  }
  const button = h("button", { type: "button", id: "sign-out", onclick: leave }, "Sign out");
  patch(document.getElementById("who"), ...(name === null ? [] : [h("span", {}, name), button]));
}
