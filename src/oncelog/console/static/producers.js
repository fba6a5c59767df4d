// Producers: where they are, and one partition's with its ring.

import { h } from "./dom.js";
import { ago, count } from "./format.js";
import { badge, link, pages, search, table, tiles } from "./parts.js";
import { left, ring } from "./ring.js";

const COUNTS = [
  ["duplicates", "duplicates refused"],
  ["trimmed", "trimmed"],
  ["fenced", "fenced"],
  ["out_of_order", "out of order"],
  ["unknown", "unknown"],
  ["full", "no room"],
];

export const title = () => "Producers";

export function asks({ topic = "", partition = "", search = "", start = "" }) {
  const asked = [["producers", { search, start }]];
  if (topic !== "") asked.push(["partition-producers", { topic, partition }]);
  return asked;
}

// Nothing is chosen yet: the first one is, so that there is something to see.
export function chooses([about], { topic = "" }) {
  const first = about.rows[0];
  return topic === "" && first !== undefined ? { topic: first.topic, partition: first.partition } : null;
}

export function show([about, chosen], context) {
  const { topic, partition } = context.parameters;
  const columns = [["topic"], ["partition", "number"], ["producers", "number"], ["duplicates refused", "number"], ["fenced", "number wide"], ["other refusals", "number wide"]];
  const rows = about.rows.map((each) => {
    const isChosen = each.topic === topic && String(each.partition) === partition;
    const to = { ...context.parameters, topic: each.topic, partition: each.partition };
    const { duplicates, trimmed, fenced, out_of_order, unknown, full } = each.counts;
    return {
      key: `${each.topic}/${each.partition}`,
      class: isChosen ? "chosen" : null,
      cells: [
        h("a", { href: link("producers", to).attributes.href, "aria-current": isChosen ? "true" : null }, each.topic),
        count(each.partition),
        count(each.leased + each.kafka),
        count(duplicates + trimmed),
        count(fenced),
        count(out_of_order + unknown + full),
      ],
    };
  });
  const part = about.looked_at < about.partitions ? ` The first ${count(about.looked_at)} of ${count(about.partitions)} partitions are looked at.` : "";
  return [
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Producers"), search(context, "Search topics")),
    chosen === undefined ? null : one(chosen),
    h("h2", {}, "Partitions with producers"),
    table("Partitions with producers", columns, rows, `Nobody has written with a producer id yet.${part}`),
    pages(context, about, "partitions"),
  ];
}

function one(chosen) {
  const columns = [["pid", "number"], ["generation", "number wide"], ["H(P)", "number"], ["lease"], ["last offset", "number wide"], ["last batch", "wide"]];
  const rows = chosen.producers.map((each) => ({
    key: each.pid,
    cells: [
      String(each.pid),
      count(each.generation),
      each.highwater < 0 ? "none yet" : count(each.highwater),
      each.is_leased ? (each.lease_left_ms === 0 ? badge("over", "quiet") : left(each.lease_left_ms)) : "Kafka's rules",
      each.last_offset === -1 ? "" : count(each.last_offset),
      ago(each.timestamp_ms),
    ],
  }));
  const known = chosen.leased + chosen.kafka;
  return h(
    "section",
    { class: "partition" },
    h("h2", {}, link("topic", { topic: chosen.topic, partition: chosen.partition }, `${chosen.topic} / ${chosen.partition}`)),
    h(
      "div",
      { class: "beside" },
      ring(chosen.ring, chosen.lifetime_ms),
      h(
        "div",
        {},
        tiles(...COUNTS.filter(([name], at) => at < 3 || chosen.counts[name] > 0).map(([name, words]) => [words, count(chosen.counts[name])])),
        table("Producers of this partition", columns, rows, "It remembers none."),
        known > rows.length ? h("p", { class: "note" }, `The ${count(rows.length)} newest of ${count(known)}.`) : null,
      ),
    ),
  );
}
