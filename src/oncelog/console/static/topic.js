// One topic: its messages as they come, its partitions, its settings.

import { h } from "./dom.js";
import { cleanup, count, many, setOut, size, time } from "./format.js";
import { badge, content, link, pages, table, tiles } from "./parts.js";

const PAGE = 50;
let kept = { about: "", messages: null }; // the list that a message was opened from: newer ones must not push it out

export const title = ({ topic }) => topic ?? "Topic";

export function asks({ topic, partition = "", offset = "", open = "", show = "", start = "" }) {
  const asked = [["topic", { topic, start }]];
  if (show !== "") return asked;
  asked.push(["messages", { topic, partition, offset }]);
  const [at, where = ""] = open.split("/");
  if (open !== "") asked.push(["message", { topic, partition: at, offset: where }]);
  return asked;
}

// While somebody is in the list with the keyboard or has a message open, it stands still.
export function stands(context) {
  const list = document.getElementById("messages");
  return Boolean(context.parameters.open) || (list !== null && list.contains(document.activeElement));
}

export function show([about, messages, message], context) {
  const { topic, show: part = "" } = context.parameters;
  const tab = (name, words) => h("a", { href: link("topic", { topic, show: name }).attributes.href, "aria-current": part === name ? "page" : null }, words);
  return [
    h("p", { class: "crumbs" }, link("topics", {}, "Topics")),
    h("h1", { tabindex: "-1" }, about.name, about.is_internal ? badge("internal", "quiet") : null),
    tiles(
      ["records", count(about.records)],
      ["size", size(about.size_bytes)],
      ["partitions", count(about.partitions)],
      ["kept", cleanup(about.cleanup)],
    ),
    h("nav", { class: "tabs", "aria-label": "Of this topic" }, tab("", "Messages"), tab("partitions", "Partitions"), tab("settings", "Settings")),
    part === "partitions" ? partitions(about, context) : part === "settings" ? settings(about) : list(about, messages, message, context),
  ];
}

function list(about, newest, message, context) {
  const { topic, partition = "", offset = "", open = "" } = context.parameters;
  const listed = `${topic} ${partition} ${offset}`;
  if (open === "" || kept.about !== listed) kept = { about: listed, messages: newest };
  const { messages } = kept;
  const isListed = messages.rows.some((row) => open === place(row));
  const rows = messages.rows.flatMap((row) => (told(row, message, context)));
  const number = (name, label, placeholder) =>
    h("label", {}, label, h("input", {
      inputmode: "numeric",
      pattern: "[0-9]*",
      size: "8",
      placeholder,
      value: context.parameters[name] ?? "",
      onchange: (event) => context.replace({ [name]: event.target.value.replace(/\D/g, ""), open: "" }),
    }));
  const columns = [["time", "wide"], ["part.", "number"], ["offset", "number"], ["key"], ["value", "grows"], ["pid", "number wide"], ["sequence", "number wide"]];
  const rest = messages.partitions > messages.tailed ? ` of the ${count(messages.tailed)} partitions written to last` : "";
  const words = offset === "" ? `The newest${rest}, as they come.` : `From offset ${offset} on.`;
  return [
    h(
      "div",
      { class: "controls" },
      number("partition", "partition", "all"),
      partition === "" ? null : number("offset", "from offset", "newest"),
      older(messages, context),
      offset === "" ? null : link("topic", { topic, partition }, "newest"),
      h("span", { class: "note" }, words),
      h("span", { class: "note standing" }, "Stands still while you are in the list."),
    ),
    open !== "" && !isListed && message !== undefined ? h("section", { class: "alone" }, whole(message)) : null,
    h("div", { id: "messages" }, table("Messages", columns, rows, "No message is there.")),
  ];
}

function older(messages, context) {
  const { topic, partition = "", offset = "" } = context.parameters;
  if (partition === "" || typeof messages.start !== "number") return null;
  const at = offset === "" ? messages.end - PAGE : Number(offset);
  const last = messages.rows.at(-1);
  const next = offset !== "" && last !== undefined && Number(last.offset) + 1 < messages.end ? Number(last.offset) + 1 : null;
  const to = (where, words) => link("topic", { topic, partition, offset: where }, words);
  return [
    at > messages.start ? to(Math.max(messages.start, at - PAGE), "← older") : null,
    next === null ? null : to(next, "newer →"),
  ];
}

function place(row) {
  return `${row.partition}/${row.offset}`;
}

function told(row, message, context) {
  const at = place(row);
  const isOpen = context.parameters.open === at;
  const href = link("topic", { ...context.parameters, open: isOpen ? "" : at }).attributes.href;
  const head = [
    h("td", { class: "wide quiet" }, time(row.timestamp_ms)),
    h("td", { class: "number" }, count(row.partition)),
    h("td", { class: "number" }, h("a", { href, "aria-expanded": isOpen ? "true" : "false" }, count(row.offset))),
  ];
  const rest = row.note === undefined ? fields(row) : [h("td", { colspan: "4" }, row.note)];
  const kind = `${isOpen ? "open" : ""} ${row.note === undefined ? "" : "noted"}`;
  const line = h("tr", { key: `${at} ${row.note === undefined}`, class: kind }, ...head, ...rest);
  if (!isOpen || message === undefined) return [line];
  return [line, h("tr", { key: `${at} whole`, class: "whole" }, h("td", { colspan: "7" }, whole(message)))];
}

function fields(row) {
  return [
    h("td", { class: "data key" }, content(row.key)),
    h("td", { class: "data grows" }, content(row.value)),
    h("td", { class: "number wide quiet" }, row.pid === null ? "" : String(row.pid)),
    h("td", { class: "number wide quiet" }, row.sequence === null ? "" : count(row.sequence)),
  ];
}

function whole(message) {
  if (message.note !== undefined) return h("p", {}, message.note);
  const field = (name, shown) => {
    const kind = shown.kind === "bytes" ? ", no UTF-8" : "";
    const cut = shown.is_cut ? ", the beginning" : "";
    return [h("dt", {}, name, h("small", {}, ` ${size(shown.size_bytes)}${kind}${cut}`)), h("dd", {}, h("pre", { tabindex: "0" }, content({ ...shown, text: shown.is_cut ? shown.text : setOut(shown.text) })))];
  };
  const { batch } = message;
  const producer = message.pid === null ? "no producer id" : `pid ${message.pid}, generation ${message.generation}, sequence ${message.sequence}`;
  return [
    h("dl", { class: "fields" }, field("key", message.key), field("value", message.value)),
    message.headers.length === 0
      ? null
      : table("Headers", [["header"], ["value", "grows"]], message.headers.map((each, at) => ({ key: at, cells: [content(each.name), content(each.value)] })), ""),
    h(
      "p",
      { class: "facts" },
      `${time(message.timestamp_ms)} (${batch.timestamps === "append" ? "when it was appended" : "as its sender says"}); ${producer}; `,
      `in a batch of ${many(batch.records, "record")} from ${count(batch.base_offset)} on, ${size(batch.size_bytes)}, codec ${batch.codec}`,
      message.header_count > message.headers.length ? `; ${count(message.header_count)} headers, the first ones are shown` : "",
    ),
  ];
}

function partitions(about, context) {
  const columns = [["partition", "number"], ["first offset", "number"], ["end", "number"], ["size", "number"], ["segments", "number wide"], ["producers", "number wide"], [""]];
  const rows = about.rows.map((each) => ({
    key: each.partition,
    cells: [
      link("topic", { topic: about.name, partition: each.partition }, count(each.partition)),
      count(each.start),
      count(each.end),
      size(each.size_bytes),
      count(each.segments),
      each.producers > 0 ? link("producers", { topic: about.name, partition: each.partition }, count(each.producers)) : "0",
      each.offline === null && each.damage === null ? null : h("span", { class: "bad" }, each.offline ?? each.damage),
    ],
  }));
  return [table("Partitions", columns, rows, "It has none."), pages(context, about, "partitions")];
}

function settings(about) {
  const rows = Object.entries(about.configs).map(([name, value]) => ({ key: name, cells: [h("code", {}, name), h("code", {}, value)] }));
  return table("Settings of this topic", [["setting"], ["value", "grows"]], rows, "It has the server's settings.");
}
