// One flow: its cells, as the ends of their journals say.

import { h } from "./dom.js";
import { ago, count, time } from "./format.js";
import { standing } from "./flows.js";
import { badge, link, pages, table, tiles } from "./parts.js";

export const title = ({ topic }) => topic ?? "Flow";
export const asks = ({ topic, start = "" }) => [["flow", { topic, start }]];

export function show([about], context) {
  const head = [
    h("p", { class: "crumbs" }, link("flows", {}, "Flows")),
    h("h1", { tabindex: "-1" }, about.flow, " ", standing(about)),
  ];
  if (about.trouble !== null) return [...head, h("p", { class: "bad" }, about.trouble), where(about)];
  const columns = [["stage"], ["cell", "number"], ["holder"], ["commit", "number"], ["committed"], ["lag", "number"], ["written", "number wide"], ["watermark", "wide"], ["version", "wide"]];
  const rows = about.cells.map((each) => ({
    key: `${each.stage}/${each.cell}`,
    cells: [
      each.stage,
      count(each.cell),
      holder(each),
      ...(each.trouble !== null
        ? ["", "", "", "", "", ""]
        : [each.commit === null ? "none" : count(each.commit), ago(each.committed_ms), lag(each.inputs), count(each.written), each.watermark_ms === null ? "" : time(each.watermark_ms), each.code ?? ""]),
    ],
  }));
  return [
    ...head,
    tiles(["stages", count(about.stages)], ["cells", count(about.cells_in_all)], ["runs", count(about.runs)], ["open runs", count(about.open_runs)]),
    h("p", { class: "facts" }, "version ", h("code", {}, about.code ?? "none")),
    h("h2", {}, "Cells"),
    table("Cells", columns, rows, "It has no cells yet."),
    pages(context, about, "cells"),
    where(about),
  ];
}

function holder(each) {
  if (each.trouble !== null) return [badge("cannot be told", "bad"), each.trouble];
  if (each.has_left) return each.why ? [badge("stopped", "bad"), each.why] : badge("left", "quiet");
  if (each.until_ms !== null && each.until_ms < Date.now()) return badge("gone without a goodbye", "bad");
  return each.commit === null && each.until_ms === null ? badge("nobody yet", "quiet") : badge("held", "good");
}

function lag(inputs) {
  return inputs.map((each) => (each.lag === null ? "?" : count(each.lag))).join(", ");
}

function where(about) {
  return h("p", { class: "note" }, "Told by the topic ", link("topic", { topic: about.topic }, about.topic), " and the ends of its journals. ", h("code", {}, `oncelog flow describe ${about.flow}`), " reads all of them.");
}
