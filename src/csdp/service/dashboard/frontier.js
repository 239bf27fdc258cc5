// The trade-off between leakage and error, by age, with the no-data line and the setting that is looked at.

import { byId, el, fill, number, row, say, svg } from "./dom.js";
import { decades, frame, linear, logarithmic, path, ticks } from "./charts.js";
import { chance, given, leakage, up, withChance } from "./numbers.js";

const COLOURS = 7;

const agesOf = (points) => [...new Set(points.map((p) => p.age))];
const colour = (points, age) => `a${agesOf(points).indexOf(age) % COLOURS}`;

/** A logarithmic scale has no place for nothing and for infinity. */
const drawable = (point) => Number.isFinite(leakage(point.leakage)) && point.leakage > 0;

/** Points that beat the no-data line visibly: what is left of them lies on that line. */
function worthwhile(points, none) {
  const found = points.filter((p) => Math.sqrt(p.mse) < 0.995 * none);
  return found.length > 0 ? found : points;
}

/** Chart, legend, note and table. `at` is the setting {leakage, error} or null, `limit` a leakage or null. */
export function showFrontier(chart, { points, no_data: mse, releases }, { at, limit }) {
  const none = Math.sqrt(mse);
  const usable = points.filter(drawable);
  const here = at === null ? "" : ` Your setting: leakage ${withChance(at.leakage)}, error ${up(at.error)}.`;
  chart.show({
    words: usable.length === 0 ? "Every setting leaks without limit." : null,
    label: `Lines of error against leakage, one for each age; no-data error ${up(none)}.${here} A table follows.`,
    draw: (width) => drawn(width, usable, { none, limit, at: at !== null && drawable(at) ? at : null, all: points }),
  });
  const often = releases === 1 ? "For one number alone." : "For publishing at every step, continually.";
  const said = [often];
  if (at !== null && !drawable(at)) said.push("Your setting is not on the chart: its leakage is infinite or zero.");
  if (usable.length < points.length) said.push("Settings whose leakage is infinite are left out.");
  said.push("Settings further left than shown are no better than no data. Leakage on a logarithmic scale.");
  say("frontier-note", said.join(" "));
  say("frontier-caption", `${often} Best estimate; without any data the typical error is ${up(none)}`);
  showLegend(usable, points);
  fill("frontier-table", points.map((p) => row(
    number(String(p.age)),
    number(given(Number(p.epsilon_c.toPrecision(3)))),
    number(up(leakage(p.leakage))),
    number(chance(leakage(p.leakage))),
    number(up(Math.sqrt(p.mse))),
    p.best ? "yes" : "no",
  )));
}

function showLegend(usable, points) {
  const line = (age) => [
    svg("path", { class: `curve ${colour(points, age)}`, d: "M1 6h22" }),
    svg("circle", { class: `point best ${colour(points, age)}`, cx: 12, cy: 6, r: 3.5 }),
  ];
  byId("frontier-legend").replaceChildren(
    ...agesOf(usable).map((age) => keyed(`age ${age}`, ...line(age))),
    keyed("your setting", svg("path", { class: "setting", d: "M12 1l5 5-5 5-5-5z" })),
    keyed("no data", svg("path", { class: "nodata", d: "M1 6h22" })),
  );
}

function keyed(name, ...shapes) {
  return el("li", {}, svg("svg", { class: "key", viewBox: "0 0 24 12", "aria-hidden": "true" }, ...shapes), name);
}

function drawn(width, points, { none, limit, at, all }) {
  const height = width < 500 ? 300 : 360;
  const margin = { left: 46, right: 16, top: 26, bottom: 58 };
  const [right, bottom] = [width - margin.right, height - margin.bottom];
  const extra = [at?.leakage, limit].filter((value) => typeof value === "number");
  const least = Math.min(...worthwhile(points, none).map((p) => p.leakage), ...extra) * 0.5;
  const most = Math.max(...points.map((p) => p.leakage), ...extra) * 1.25;
  const top = Math.max(none, ...points.map((p) => Math.sqrt(p.mse)), at?.error ?? 0) * 1.08;
  const x = logarithmic([least, most], [margin.left, right]);
  const y = linear([0, top], [bottom, margin.top]);
  const xTicks = decades(least, most, width / 80);
  const nodes = frame({
    width, height, margin, x, y,
    xTicks, xText: given, xName: "leakage about the present (less is better)",
    yTicks: ticks(0, top, 5), yText: given, yName: "typical error of the estimate",
  });
  for (const value of xTicks) {
    nodes.push(svg("text", { x: x(value), y: bottom + 31, "text-anchor": "middle" }, chance(value)));
  }
  nodes.push(svg("line", { class: "nodata", x1: margin.left, x2: right, y1: y(none), y2: y(none) }));
  nodes.push(svg("text", { x: right, y: y(none) - 6, "text-anchor": "end" }, `no data: ${up(none, 3)}`));
  const spot = (p) => [x(p.leakage), y(Math.sqrt(p.mse))];
  for (const age of agesOf(points)) {
    const line = points.filter((p) => p.age === age && p.leakage >= least).sort((a, b) => a.epsilon_c - b.epsilon_c);
    nodes.push(svg("path", { class: `curve ${colour(all, age)}`, d: path(line.map(spot)) }));
    for (const p of line) {
      const kind = `point ${colour(all, age)}${p.best ? " best" : ""}`;
      nodes.push(svg("circle", { class: kind, cx: spot(p)[0], cy: spot(p)[1], r: 3.5 }));
    }
  }
  if (limit !== null) nodes.push(...limitLine(x(limit), limit, { width, top: margin.top, bottom }));
  if (at !== null) {
    const mark = `M${x(at.leakage)} ${y(at.error) - 9}l9 9-9 9-9-9z`;
    nodes.push(svg("path", { class: "setting", id: "setting-mark", d: mark }));
  }
  return { height, nodes };
}

function limitLine(x, limit, { width, top, bottom }) {
  const side = x < width / 3 ? { x: x + 6, "text-anchor": "start" } : { x: x - 6, "text-anchor": "end" };
  return [
    svg("line", { class: "limit", x1: x, x2: x, y1: top, y2: bottom }),
    svg("text", { class: "limit-text", y: bottom - 8, ...side }, `limit ${withChance(limit, given(limit))}`),
  ];
}
