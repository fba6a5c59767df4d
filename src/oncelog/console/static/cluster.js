// The cluster, as the broker that serves this page sees it.

import { h } from "./dom.js";
import { count, many } from "./format.js";
import { badge, link, pages, table, tiles } from "./parts.js";

export const title = () => "Cluster";
export const asks = ({ start = "" }) => [["cluster", { start }]];

const KINDS = { up: "good", stopping: "quiet", down: "bad" };

export function show([about], context) {
  const head = h("h1", { tabindex: "-1" }, "Cluster");
  if (about.is_alone) return [head, h("p", { class: "empty" }, "This server stands alone.")];
  const counts = about.counts;
  const wrong = (number) => (number > 0 ? "bad" : null);
  return [
    head,
    h("p", { class: "facts" }, `As broker ${about.node_id} sees it.`),
    table("Brokers", [["broker", "number"], ["address"], ["rack", "wide"], ["state"], ["leads", "number"], ["has", "number"]], about.brokers.map(broker), ""),
    tiles(
      ["without a leader", count(counts.without_leader), wrong(counts.without_leader)],
      ["under-replicated", count(counts.under_replicated), wrong(counts.under_replicated)],
      ["below min.insync", count(counts.under_min_isr), wrong(counts.under_min_isr)],
      ["at min.insync", count(counts.at_min_isr)],
      ["not led as preferred", count(counts.not_preferred)],
      ["moving", count(counts.moving)],
      ["elections won here", count(about.elections)],
    ),
    about.summed < about.partitions ? h("p", { class: "note" }, `Of ${count(about.summed)} of ${many(about.partitions, "partition")}.`) : null,
    h("h2", {}, "Partitions"),
    h("p", { class: "note" }, `Those that lack something come first. How far followers are behind is known of what broker ${about.node_id} leads.`),
    table("Partitions", COLUMNS, about.rows.map(partition), "There is no topic yet."),
    pages(context, about, "partitions"),
  ];
}

function broker(each) {
  return {
    key: each.id,
    cells: [String(each.id), each.address, each.rack ?? "–", badge(each.state, KINDS[each.state]), count(each.leads), count(each.replicas)],
  };
}

const COLUMNS = [["topic"], ["partition", "number"], ["leader", "number"], ["epoch", "number wide"], ["replicas"], ["in sync"], ["behind"]];

function partition(each) {
  const lacks = each.in_sync.length < each.replicas.length;
  const behind = each.lags.map(([node, lag]) => `${node}: ${count(lag)}`).join(", ");
  const moves = [...each.adding.map((node) => `+${node}`), ...each.removing.map((node) => `−${node}`)].join(" ");
  return {
    key: `${each.topic}/${each.partition}`,
    cells: [
      link("topic", { topic: each.topic, show: "partitions" }, each.topic),
      count(each.partition),
      each.leader === null ? badge("none", "bad") : String(each.leader),
      count(each.epoch),
      [each.replicas.join(", "), moves ? badge(moves, "quiet") : null],
      [each.in_sync.join(", "), lacks ? badge("too few", "bad") : null, each.eligible.length > 0 ? badge(`may lead: ${each.eligible.join(", ")}`, "quiet") : null],
      behind || "–",
    ],
  };
}
