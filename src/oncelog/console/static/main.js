// Which view is shown, and asking the server for it again and again while somebody looks.

import { h, patch } from "./dom.js";
import { duration } from "./format.js";
import { address } from "./parts.js";
import * as cluster from "./cluster.js";
import * as faults from "./faults.js";
import * as flow from "./flow.js";
import * as flows from "./flows.js";
import * as group from "./group.js";
import * as groups from "./groups.js";
import * as overview from "./overview.js";
import * as producers from "./producers.js";
import * as signIn from "./sign-in.js";
import * as sink from "./sink.js";
import * as spark from "./spark.js";
import * as topic from "./topic.js";
import * as topics from "./topics.js";

const VIEWS = { overview, topics, topic, producers, groups, group, spark, sink, flows, flow, faults, cluster };
const NAVIGATION = [["overview", "Overview", "cluster"], ["topics", "Topics", "topic"], ["producers", "Producers"], ["groups", "Groups", "group"], ["spark", "Spark", "sink"], ["flows", "Flows", "flow"], ["faults", "Faults"]];
const PERIOD_MS = 1000;
const PATIENCE_MS = 8000; // for an answer; then the connection counts as lost
const THEMES = ["auto", "light", "dark"];

const content = document.getElementById("content");
const status = document.getElementById("status");
let timer = 0;
let looks = 0; // the number of the newest one: an answer to an older one comes too late
let lostSince = null;
let shown = ""; // the view and what it is about, when the focus was last moved to its heading

class Told extends Error {} // by the server: it is there, and says no
class Unknown extends Error {} // to the server: somebody has to sign in first
class Unexpected extends Error {} // it is there, and something is wrong with it, or it has too many readers

function route() {
  const [name, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const view = name in VIEWS ? name : "overview";
  return { view, parameters: Object.fromEntries(new URLSearchParams(query)) };
}

function contextOf({ view, parameters }) {
  return {
    view,
    parameters,
    replace(changes) {
      history.replaceState(null, "", address(view, { ...parameters, ...changes }));
      look();
    },
  };
}

async function ask([name, parameters]) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value !== undefined));
  const answer = await fetch(`/api/${name}?${query}`, { signal: AbortSignal.timeout(PATIENCE_MS) });
  const body = answer.headers.get("content-type")?.startsWith("application/json") ? await answer.json() : {};
  if (answer.ok) return body;
  if (answer.status === 401) throw new Unknown();
  if (body.error !== undefined) throw new Told(body.error);
  throw new Unexpected(`The server answers ${answer.status}`);
}

async function look() {
  clearTimeout(timer);
  const number = (looks += 1);
  const where = route();
  const view = VIEWS[where.view];
  const context = contextOf(where);
  try {
    const asked = view.asks(where.parameters).map((each) => (typeof each === "string" ? [each, {}] : each));
    const answers = await Promise.all(asked.map(ask));
    if (number !== looks) return;
    const choice = view.chooses?.(answers, where.parameters);
    if (choice) {
      context.replace(choice);
      return;
    }
    found();
    const isStill = content.dataset.view === location.hash && view.stands?.(context) === true;
    if (!isStill) render(where, view.show(answers, context));
  } catch (error) {
    if (number !== looks) return;
    if (error instanceof Unknown) {
      found();
      askWho(where);
      return; // until somebody has signed in there is nothing to ask for
    }
    if (error instanceof Told) {
      found();
      render(where, [h("h1", { tabindex: "-1" }, "Not there"), h("p", { class: "bad" }, error.message)]);
    } else lost(error);
  }
  if (!document.hidden) timer = setTimeout(look, PERIOD_MS);
}

function askWho(where) {
  signIn.show(null, look);
  if (content.querySelector("form.sign-in") !== null) return;
  render(where, signIn.form(entered), "Sign in");
  content.querySelector("input")?.focus();
}

function entered(name) {
  signIn.show(name, look);
  look();
}

function render(where, nodes, title = VIEWS[where.view].title(where.parameters)) {
  document.title = `${title} · oncelog`;
  const isNew = shown !== `${where.view} ${title}`;
  const isFirst = shown === "";
  shown = `${where.view} ${title}`;
  patch(content, h("div", { key: shown }, ...nodes));
  content.dataset.view = location.hash;
  navigation(where.view);
  if (isNew && !isFirst) {
    scrollTo(0, 0);
    content.querySelector("h1")?.focus({ preventScroll: true });
  }
}

function navigation(view) {
  const items = NAVIGATION.map(([name, words, below]) => {
    const isHere = name === view || below === view;
    return h("a", { href: address(name), "aria-current": isHere ? "page" : null }, words);
  });
  patch(document.getElementById("nav"), ...items);
}

function found() {
  document.body.classList.remove("lost");
  lostSince = null;
  patch(status);
}

function lost(error) {
  if (lostSince === null) console.warn(error);
  lostSince ??= Date.now();
  document.body.classList.add("lost");
  const what = error instanceof Unexpected ? error.message : "The server does not answer";
  const since = duration(Math.round((Date.now() - lostSince) / 1000) * 1000);
  patch(status, h("p", {}, `${what}, for ${since} now. What you see is older. Trying again.`));
}

function kept(theme) {
  try {
    if (theme !== undefined) localStorage.setItem("theme", theme);
    return localStorage.getItem("theme");
  } catch {
    return theme ?? null; // a browser that keeps nothing
  }
}

function theme(next) {
  const known = THEMES.indexOf(kept() ?? document.documentElement.dataset.theme);
  const wanted = THEMES[(Math.max(0, known) + (next ? 1 : 0)) % THEMES.length];
  kept(wanted);
  document.documentElement.dataset.theme = wanted;
  patch(document.getElementById("theme"), `Theme: ${wanted}`);
}

document.getElementById("theme").addEventListener("click", () => theme(true));
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the view
  content.focus();
});
document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof HTMLInputElement;
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const field = content.querySelector(".search");
  if (field !== null) {
    event.preventDefault();
    field.focus();
  }
});
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : look()));
addEventListener("hashchange", look);
signIn.user().then((name) => signIn.show(name, look), () => {}); // where the server does not answer, `look` says so
theme(false);
navigation(route().view);
look();
