// The ring that a partition's leases live in: how full it is, and how old they are.

import { h } from "./dom.js";
import { count, duration, many } from "./format.js";

const FEWEST_PLACES = 24; // so that one lease alone is no full circle
const STEPS = 4;

export function ring(about, lifetimeMs) {
  const { capacity, live, places } = about;
  const slots = Math.max(FEWEST_PLACES, places.length);
  const full = capacity > 0 ? Math.min(1, live / capacity) : 0;
  const over = places.filter((each) => each.lease_left_ms <= 0).length;
  const thinned = live > places.length ? `, of which ${count(places.length)} are drawn` : "";
  const words = `${many(live, "lease")} in a ring of ${count(capacity)}${thinned}. Oldest at the top, then clockwise.`;
  return h(
    "figure",
    { class: "ring" },
    h(
      "svg",
      { viewBox: "0 0 240 240", role: "img", "aria-label": `${words} ${count(over)} of those drawn are over.` },
      h("circle", { class: "track", cx: 120, cy: 120, r: 112, pathLength: 100 }),
      h("circle", {
        class: "full",
        cx: 120,
        cy: 120,
        r: 112,
        pathLength: 100,
        "stroke-dasharray": `${live > 0 ? Math.max(0.6, full * 100).toFixed(2) : 0} 100`,
        transform: "rotate(-90 120 120)",
      }),
      ...Array.from({ length: slots }, (_, at) => place(at, slots, places[at], lifetimeMs)),
      h("text", { class: "number", x: 120, y: 118 }, count(live)),
      h("text", { class: "of", x: 120, y: 140 }, `of ${count(capacity)}`),
    ),
    h("figcaption", {}, words),
    h(
      "ul",
      { class: "legend" },
      ...["fresh", "half gone", "soon over", "over, still remembered"].map((each, at) =>
        h("li", {}, h("span", { class: `swatch lease-${at}` }), each),
      ),
    ),
  );
}

function place(at, slots, lease, lifetimeMs) {
  const gap = slots > 90 ? 0.3 : 1.2;
  const step = 360 / slots;
  const kind = lease === undefined ? "place" : `place lease-${age(lease, lifetimeMs)}`;
  const title = lease === undefined ? null : h("title", {}, `pid ${lease.pid}: ${left(lease.lease_left_ms)}`);
  return h("path", { key: at, class: kind, d: sector(at * step + gap / 2, (at + 1) * step - gap / 2) }, title);
}

function age(lease, lifetimeMs) {
  if (lease.lease_left_ms <= 0) return STEPS - 1;
  const part = lease.lease_left_ms / lifetimeMs;
  return part > 0.5 ? 0 : part > 0.1 ? 1 : 2;
}

export function left(ms) {
  if (ms < 0) return "not leased";
  return ms === 0 ? "lease over" : `${duration(ms)} left`;
}

function sector(fromDegrees, toDegrees) {
  const [outer, inner] = [100, 76];
  const point = (radius, degrees) => {
    const radians = ((degrees - 90) * Math.PI) / 180;
    return `${(120 + radius * Math.cos(radians)).toFixed(2)} ${(120 + radius * Math.sin(radians)).toFixed(2)}`;
  };
  return (
    `M${point(outer, fromDegrees)}A${outer} ${outer} 0 0 1 ${point(outer, toDegrees)}` +
    `L${point(inner, toDegrees)}A${inner} ${inner} 0 0 0 ${point(inner, fromDegrees)}Z`
  );
}
