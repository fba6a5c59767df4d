// What an experiment does to the server, as it happens.

import { h } from "./dom.js";
import { ago, count, time } from "./format.js";
import { badge, table } from "./parts.js";

export const title = () => "Faults";
export const asks = () => ["faults"];

export function show([about]) {
  const rows = about.faults.map((each, at) => ({
    key: `${each.at_ms} ${each.words} ${about.faults.length - at}`,
    cells: [time(each.at_ms), badge(each.kind, "busy"), each.words, ago(each.at_ms)],
  }));
  const columns = [["time"], ["hit"], ["what was done", "grows"], ["", "wide"]];
  return [
    h("h1", { tabindex: "-1" }, "Faults"),
    table("Faults", columns, rows, "Nobody injects faults here. Those of a chaos run with a page show up as they happen."),
    about.is_cut ? h("p", { class: "note" }, `The newest ${count(rows.length)}; the report of the run has all.`) : null,
  ];
}
