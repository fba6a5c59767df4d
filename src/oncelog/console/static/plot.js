// A line over the last minutes, with marks where something happened.

import { h } from "./dom.js";

const WIDTH = 600;
const HEIGHT = 90;

// points: [at_ms, value], oldest first; marks: [{ at_ms, words }]
export function plot(label, points, marks, { fromMs, toMs, words }) {
  const most = Math.max(0, ...points.map(([, value]) => value));
  const x = (ms) => (((ms - fromMs) / (toMs - fromMs)) * WIDTH).toFixed(1);
  const y = (value) => (HEIGHT - 4 - (value / Math.max(most, 1)) * (HEIGHT - 12)).toFixed(1);
  const line = points.map(([ms, value], at) => `${at === 0 ? "M" : "L"}${x(ms)} ${y(value)}`).join("");
  const filled = points.length > 1 ? `${line}L${x(points.at(-1)[0])} ${HEIGHT}L${x(points[0][0])} ${HEIGHT}Z` : "";
  const shown = marks.filter((each) => each.at_ms >= fromMs && each.at_ms <= toMs);
  const latest = points.length > 0 ? points.at(-1)[1] : 0;
  const drawing = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" };
  return h(
    "figure",
    { class: "plot" },
    h("figcaption", {}, label, " ", h("b", {}, words(latest)), h("span", {}, most > 0 ? `, at most ${words(most)}` : null)),
    h(
      "svg",
      drawing,
      h("path", { class: "area", d: filled }),
      h("path", { class: "line", d: line }),
      ...shown.map((each, at) =>
        h("line", { key: at, class: "mark", x1: x(each.at_ms), x2: x(each.at_ms), y1: 0, y2: HEIGHT }, h("title", {}, each.words)),
      ),
    ),
  );
}
