// What views are made of: links, tables, tiles, search and pages.

import { h } from "./dom.js";
import { count } from "./format.js";

export function address(view, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

export function link(view, parameters, ...children) {
  return h("a", { href: address(view, parameters) }, ...children);
}

// Columns are [title, class]; rows are arrays of cells, or descriptions of a whole <tr>.
export function table(label, columns, rows, empty) {
  if (rows.length === 0) return h("p", { class: "empty" }, empty);
  const head = columns.map(([title, kind]) => h("th", { scope: "col", class: kind ?? null }, title));
  const body = rows.map((row) => {
    if (row.tag !== undefined) return row;
    const { key, cells, ...attributes } = row;
    return h("tr", { key, ...attributes }, ...cells.map((cell, at) => h("td", { class: columns[at][1] ?? null }, cell)));
  });
  const scrolls = { class: "scrolls", role: "region", "aria-label": label, tabindex: "0" };
  return h("div", scrolls, h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...body)));
}

export function tiles(...pairs) {
  const shown = pairs.filter((each) => each !== null);
  return h(
    "dl",
    { class: "tiles" },
    ...shown.map(([name, value, kind]) => h("div", { class: kind ?? null }, h("dt", {}, name), h("dd", {}, value))),
  );
}

export function search(context, label) {
  return h("input", {
    class: "search",
    type: "search",
    "aria-label": label,
    placeholder: label,
    maxlength: "249",
    autocomplete: "off",
    spellcheck: "false",
    value: context.parameters.search ?? "",
    oninput: (event) => context.replace({ search: event.target.value, start: "" }),
  });
}

export function pages(context, about, noun) {
  const { found, start, page } = about;
  const cut = about.is_cut ? h("p", { class: "note" }, `There are more ${noun} than are looked at for one page.`) : null;
  if (found <= page) return cut;
  const to = (at, words) => link(context.view, { ...context.parameters, start: at }, words);
  const words = `${count(start + 1)} to ${count(Math.min(found, start + page))} of ${count(found)} ${noun}`;
  const before = start > 0 ? to(Math.max(0, start - page), "← previous") : null;
  const behind = start + page < found ? to(start + page, "next →") : null;
  return [h("p", { class: "pages" }, before, h("span", {}, words), behind), cut];
}

// Bytes that anyone may have sent: as text, with a word about what it is where it is no plain text.
export function content(shown, cut = "…") {
  if (shown.kind === "null") return h("span", { class: "null" }, "null");
  if (shown.size_bytes === 0) return h("span", { class: "null" }, "empty");
  return h("bdi", { class: shown.kind }, shown.text, shown.is_cut ? h("span", { class: "cut" }, cut) : null);
}

export function badge(words, kind) {
  return h("span", { class: `badge ${kind}` }, words);
}
