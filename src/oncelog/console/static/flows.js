// Flows, told by their registers.

import { h } from "./dom.js";
import { count } from "./format.js";
import { badge, link, pages, search, table } from "./parts.js";

export const title = () => "Flows";
export const asks = ({ search = "", start = "" }) => [["flows", { search, start }]];

export function standing(each) {
  if (each.trouble !== null) return badge("cannot be told", "bad");
  if (each.order !== "run") return badge("paused", "busy");
  return badge(each.runs === 0 ? "never ran" : "runs where it is started", each.runs === 0 ? "quiet" : "good");
}

export function show([about], context) {
  const columns = [["flow"], ["state"], ["stages", "number"], ["cells", "number"], ["runs", "number wide"], ["version", "wide"]];
  const rows = about.flows.map((each) => ({
    key: each.topic,
    cells: [
      link("flow", { topic: each.topic }, each.flow),
      [standing(each), each.trouble],
      count(each.stages ?? 0),
      count(each.cells_in_all ?? 0),
      count(each.runs ?? 0),
      each.code ?? "",
    ],
  }));
  const none = context.parameters.search
    ? "No flow has that in its name."
    : "No flow has begun here yet. Each keeps a topic oncelog.flow.NAME, and shows up by it.";
  return [
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Flows"), search(context, "Search flows")),
    table("Flows", columns, rows, none),
    pages(context, about, "flows"),
  ];
}
