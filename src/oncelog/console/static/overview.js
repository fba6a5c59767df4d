// The server at a glance.

import { h } from "./dom.js";
import { count, many, rate, size } from "./format.js";
import { link, table, tiles } from "./parts.js";
import { plot } from "./plot.js";

const KEPT_MS = 120_000;
const SHORTEST_MS = 20_000;
const samples = []; // { at_ms, appended, bytes }: what the counters said, while this page was open

export const title = () => "Overview";
export const asks = () => ["overview"];

export function show([about]) {
  note(about);
  const sums = about.sums;
  const span = { fromMs: Math.min(samples[0].at_ms, Date.now() - SHORTEST_MS), toMs: Date.now() };
  const part = about.summed < about.partitions;
  return [
    h("h1", { tabindex: "-1" }, "Overview"),
    h("p", { class: "facts" }, `oncelog ${about.version} on `, h("code", {}, about.addresses), ", data in ", h("code", {}, about.folder)),
    troubles(about),
    h(
      "div",
      { class: "plots" },
      plot("records/s", rates("appended"), about.faults, { ...span, words: rate }),
      plot("received/s", rates("bytes"), about.faults, { ...span, words: size }),
    ),
    tiles(
      about.brokers > 1 ? ["brokers", link("cluster", {}, count(about.brokers))] : null,
      ["topics", link("topics", {}, count(about.topics))],
      ["partitions", count(about.partitions)],
      ["records", count(sums.records)],
      ["on disk", size(sums.size_bytes)],
      ["producers", link("producers", {}, count(sums.leased + sums.kafka))],
      ["groups", link("groups", {}, count(about.groups))],
      ["connections", count(about.connections)],
      ["memory", size(about.memory_bytes)],
    ),
    part ? h("p", { class: "note" }, `Added up over ${count(about.summed)} of ${many(about.partitions, "partition")}.`) : null,
    h("h2", {}, "Kept out since the start"),
    tiles(
      ["duplicates refused", count(sums.duplicates), sums.duplicates > 0 ? "good" : null],
      ["trimmed", count(sums.trimmed), sums.trimmed > 0 ? "good" : null],
      ["fenced", count(sums.fenced), sums.fenced > 0 ? "good" : null],
      ["refused otherwise", count(sums.refused)],
    ),
  ];
}

function troubles(about) {
  const lacking = about.under_replicated > 0 ? h("p", { class: "bad" }, `${many(about.under_replicated, "partition")} not at all brokers that are to have it: `, link("cluster", {}, "the cluster")) : null;
  const disk = about.storage_errors > 0 ? h("p", { class: "bad" }, `The disk refused ${many(about.storage_errors, "write")}.`) : null;
  return [
    lacking,
    disk,
    listed("Offline", "Partitions that are offline", about.offline),
    listed("Damaged", "Partitions in which something is not what was written", about.damaged),
  ];
}

function listed(heading, caption, partitions) {
  if (partitions.length === 0) return null;
  const rows = partitions.map((each) => ({
    key: `${each.topic}/${each.partition}`,
    cells: [link("topic", { topic: each.topic, show: "partitions" }, each.topic), count(each.partition), each.why],
  }));
  const columns = [["topic"], ["partition", "number"], ["why"]];
  return [h("h2", {}, heading), table(caption, columns, rows, "")];
}

function note(about) {
  const now = Date.now();
  const last = samples.at(-1);
  if (last !== undefined && about.sums.appended < last.appended) samples.length = 0; // another server, or topics deleted
  samples.push({ at_ms: now, appended: about.sums.appended, bytes: about.bytes_received });
  while (samples[0].at_ms < now - KEPT_MS) samples.shift();
}

function rates(what) {
  return samples.slice(1).map((each, at) => {
    const before = samples[at];
    const passed = Math.max(1, each.at_ms - before.at_ms) / 1000;
    return [each.at_ms, Math.max(0, each[what] - before[what]) / passed];
  });
}
