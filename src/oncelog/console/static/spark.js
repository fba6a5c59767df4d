// Spark queries that write by the exactly-once sink, told by the topics of their sinks.

import { h } from "./dom.js";
import { ago, count } from "./format.js";
import { badge, link, pages, search, table } from "./parts.js";

export const title = () => "Spark";
export const asks = ({ search = "", start = "" }) => [["sinks", { search, start }]];

export function standing(each) {
  if (each.trouble !== null) return badge("cannot be told", "bad");
  if (each.sending > 0) return badge(`writing batch ${count(each.next_batch)}`, "busy");
  return each.batch === null ? badge("nothing saved yet", "quiet") : badge(`batch ${count(each.batch)} is whole`, "good");
}

export function show([about], context) {
  const columns = [["sink"], ["state"], ["lanes", "number"], ["rows of the last batch", "number wide"], ["writes to", "wide"], ["saved"]];
  const rows = about.sinks.map((each) => ({
    key: each.topic,
    cells: [
      link("sink", { topic: each.topic }, each.sink),
      [standing(each), each.trouble],
      count(each.lanes_used ?? 0),
      count(each.rows ?? 0),
      (each.topics ?? []).join(", "),
      ago(each.saved_at_ms),
    ],
  }));
  const none = context.parameters.search
    ? "No sink has that in its name."
    : "No query has written by the exactly-once sink yet. Each keeps a topic oncelog.sink.NAME here, and shows up by it.";
  return [
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Spark queries"), search(context, "Search sinks")),
    table("Sinks", columns, rows, none),
    pages(context, about, "sinks"),
  ];
}
