// One Spark query: its lanes.

import { h } from "./dom.js";
import { ago, count } from "./format.js";
import { badge, link, pages, table, tiles } from "./parts.js";
import { standing } from "./spark.js";

const MOST_PLACES = 6; // partitions of a lane in one line

export const title = ({ topic }) => topic ?? "Sink";
export const asks = ({ topic, start = "" }) => [["sink", { topic, start }]];

export function show([about], context) {
  const head = [
    h("p", { class: "crumbs" }, link("spark", {}, "Spark queries")),
    h("h1", { tabindex: "-1" }, about.sink, " ", standing(about)),
  ];
  if (about.trouble !== null) return [...head, h("p", { class: "bad" }, about.trouble), where(about)];
  const rows = about.lanes.map((each) => ({
    key: each.lane,
    cells: [
      count(each.lane),
      each.is_sending ? badge("writing", "busy") : each.is_saved ? badge("saved", "good") : badge("claimed", "quiet"),
      pids(each.places),
      each.idle_batches > 0 ? `idle for ${count(each.idle_batches)}` : count(each.rows),
      places(each.places),
    ],
  }));
  const columns = [["lane", "number"], ["state"], ["pid", "number"], ["rows", "number"], ["goes on at", "grows"]];
  return [
    ...head,
    tiles(
      ["last whole batch", about.batch === null ? "none" : count(about.batch)],
      ["saved", ago(about.saved_at_ms) || "never"],
      ["its lanes", count(about.lanes_used)],
      ["its rows", count(about.rows)],
    ),
    h("p", { class: "facts" }, "query ", h("code", {}, about.query ?? "unknown"), ", writes to ", (about.topics.length > 0 ? about.topics.join(", ") : "nothing yet")),
    h("h2", {}, "Lanes"),
    table("Lanes", columns, rows, "No lane has claimed anything yet."),
    pages(context, about, "lanes"),
    where(about),
  ];
}

function where(about) {
  return h("p", { class: "note" }, "Told by the end of the topic ", link("topic", { topic: about.topic }, about.topic), ".");
}

function pids(places) {
  return [...new Set(places.map((each) => each.pid).filter((each) => each !== undefined))].join(", ");
}

function places(all) {
  const shown = all.slice(0, MOST_PLACES).map((each) => each.trouble ?? `${each.topic}/${each.partition}: ${count(each.next_sequence)}`);
  return shown.join("; ") + (all.length > MOST_PLACES ? "; …" : "");
}
