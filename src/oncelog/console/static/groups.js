// Groups of consumers and how far behind they are.

import { h } from "./dom.js";
import { count } from "./format.js";
import { badge, link, pages, search, table } from "./parts.js";

const STATES = { Stable: "good", Empty: "quiet", Dead: "bad" };

export const title = () => "Groups";
export const asks = ({ search = "", start = "" }) => [["groups", { search, start }]];

export function state(words) {
  return badge(words, STATES[words] ?? "busy");
}

export function show([about], context) {
  const columns = [["group"], ["state"], ["members", "number wide"], ["lag", "number"], ["partitions", "number wide"]];
  const rows = about.groups.map((each) => ({
    key: each.group,
    cells: [
      link("group", { group: each.group }, h("bdi", {}, each.name === "" ? "(no name)" : each.name)),
      state(each.state),
      count(each.members),
      [each.summed < each.partitions ? "≥ " : null, count(each.lag)],
      count(each.partitions),
    ],
  }));
  const none = context.parameters.search ? "No group has that in its name." : "There is no group yet.";
  return [
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Groups"), search(context, "Search groups")),
    table("Groups", columns, rows, none),
    pages(context, about, "groups"),
  ];
}
