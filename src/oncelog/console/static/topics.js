// All topics.

import { h } from "./dom.js";
import { cleanup, count, size } from "./format.js";
import { badge, link, pages, search, table } from "./parts.js";

export const title = () => "Topics";
export const asks = ({ search = "", start = "" }) => [["topics", { search, start }]];

export function show([about], context) {
  const columns = [["topic"], ["records", "number"], ["size", "number"], ["partitions", "number wide"], ["kept", "wide"]];
  const rows = about.topics.map((each) => ({
    key: each.name,
    cells: [
      [
        link("topic", { topic: each.name }, each.name),
        each.is_internal ? badge("internal", "quiet") : null,
        each.offline > 0 ? badge(`${count(each.offline)} offline`, "bad") : null,
      ],
      [each.summed < each.partitions ? "≥ " : null, count(each.records)],
      [each.summed < each.partitions ? "≥ " : null, size(each.size_bytes)],
      count(each.partitions),
      cleanup(each.cleanup),
    ],
  }));
  const none = context.parameters.search ? "No topic has that in its name." : "There is no topic yet.";
  return [
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Topics"), search(context, "Search topics")),
    table("Topics", columns, rows, none),
    pages(context, about, "topics"),
  ];
}
