// One group: its lag partition by partition, and its members.

import { h } from "./dom.js";
import { ago, count } from "./format.js";
import { state } from "./groups.js";
import { badge, link, pages, table } from "./parts.js";

export const title = ({ group }) => group ?? "Group";
export const asks = ({ group, start = "" }) => [["group", { group, start }]];

export function show([about], context) {
  const offsets = about.offsets.map((each) => ({
    key: `${each.topic}/${each.partition}`,
    cells: [
      each.end === null ? each.topic : link("topic", { topic: each.topic, partition: each.partition }, each.topic),
      count(each.partition),
      count(each.committed),
      each.end === null ? badge("gone", "quiet") : count(each.end),
      each.lag === null ? "" : h("b", {}, count(each.lag)),
      ago(each.at_ms),
    ],
  }));
  const members = about.member_rows.map((each) => ({
    key: each.member,
    cells: [h("bdi", {}, each.client), h("bdi", {}, each.host), h("bdi", {}, each.instance ?? ""), [h("bdi", {}, each.member), each.is_leader ? badge("leads", "quiet") : null]],
  }));
  const rest = about.members > members.length ? h("p", { class: "note" }, `The first ${count(members.length)} of ${count(about.members)}.`) : null;
  const columns = [["topic"], ["partition", "number"], ["committed", "number wide"], ["end", "number wide"], ["lag", "number"], ["committed", "wide"]];
  return [
    h("p", { class: "crumbs" }, link("groups", {}, "Groups")),
    h("h1", { tabindex: "-1" }, h("bdi", {}, about.name), " ", state(about.state)),
    h("p", { class: "facts" }, `generation ${count(about.generation)}`, about.protocol ? `, assigned by ${about.protocol}` : ""),
    h("h2", {}, "Lag"),
    table("Lag by partition", columns, offsets, "Nothing is committed."),
    pages(context, about, "partitions"),
    h("h2", {}, "Members"),
    table("Members", [["client"], ["host"], ["instance", "wide"], ["member", "wide"]], members, "Nobody is in it."),
    rest,
  ];
}
