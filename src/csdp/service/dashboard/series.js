// Drawings over time: published numbers with their estimate, and leakage against its limit.

import { svg } from "./dom.js";
import { frame, linear, path, ticks, widened } from "./charts.js";
import { axisTime, chance, given, leakage, near, withChance } from "./numbers.js";

const TEXT_WIDTH = 6.5; // of a letter at an axis, at most

/** One release in words: `place` is the number of the output that is looked at. */
export function described(release, place) {
  const estimate = release.estimate[place];
  const said = [`published ${near(release.values[place])}`];
  if (estimate !== undefined) said.push(`estimate ${near(estimate)}${bandText(release, place)}`);
  if (release.usual.length > 0) said.push(`without any release ${near(release.usual[place], 3)}`);
  return `${said.join(", ")}, leakage ${withChance(leakage(release.epsilon_s))}.`;
}

/** The ends of the band; ± 2 standard errors where none was recorded, nothing if the error is not known. */
function band(release, place) {
  if (release.low.length > 0) return [release.low[place], release.high[place]];
  if (release.standard_error.length === 0) return [];
  const half = 2 * release.standard_error[place];
  return [release.estimate[place] - half, release.estimate[place] + half];
}

/** The band in words, after the estimate; nothing if there is none. */
export function bandText(release, place) {
  const [low, high] = band(release, place);
  return low === undefined ? "" : ` (${near(low, 3)} to ${near(high, 3)})`;
}

/** Releases in runs of consecutive ticks: a line must not bridge a gap. */
function runs(releases) {
  const found = [];
  for (const release of releases) {
    const current = found.at(-1);
    if (current !== undefined && current.at(-1).tick === release.tick - 1) current.push(release);
    else found.push([release]);
  }
  return found;
}

/** Scale, marks and texts from the first release to the newest tick that is over. */
function timeAxis(first, { now, step, calendar }, width, margin) {
  const ends = first.tick === now ? [now - 1, now + 1] : [first.tick, now];
  const x = linear(ends, [margin.left + 6, width - margin.right - 6]);
  const marks = ticks(first.tick, now, Math.max(3, Math.floor(width / 120)));
  const time = calendar ?? ((tick) => first.time + step * (tick - first.tick));
  const text = axisTime(first.time, time(now) - first.time, calendar === null ? step : 60);
  const xText = (tick) => text(time(tick));
  const xTicks = [];
  let free = -Infinity; // where the text of the last mark ends
  for (const tick of marks.filter((each) => Number.isInteger(each) && x(each) < width - 24)) {
    const half = TEXT_WIDTH * xText(tick).length / 2;
    if (x(tick) - half < free) continue;
    xTicks.push(tick);
    free = x(tick) + half + TEXT_WIDTH;
  }
  return { x, xTicks, xText };
}

/** The chart of published numbers; `read(release)` is called with the release under the pointer, or null. */
export function drawSeries(releases, { place, gaps, read, ...time }) {
  return (width) => {
    const height = width < 500 ? 230 : 280;
    const margin = { left: 46, right: 14, top: 10, bottom: 26 };
    const bottom = height - margin.bottom;
    const shown = (r) => [...r.estimate.slice(place, place + 1), ...band(r, place), ...r.usual.slice(place, place + 1)];
    const all = releases.flatMap((r) => [r.values[place], ...shown(r)]);
    const domain = widened(Math.min(...all), Math.max(...all));
    const y = linear(domain, [bottom, margin.top]);
    const { x, ...axis } = timeAxis(releases[0], time, width, margin);
    const nodes = frame({ width, height, margin, x, y, ...axis, yTicks: ticks(...domain, height / 55), yText: given });
    const estimated = releases.filter((r) => r.estimate.length > 0);
    for (const run of runs(estimated)) nodes.push(...drawRun(run, x, y, place));
    const expected = releases.filter((r) => r.usual.length > 0);
    nodes.push(svg("path", { class: "nodata", d: path(expected.map((r) => [x(r.tick), y(r.usual[place])])) }));
    const size = Math.max(2, Math.min(3.5, width / releases.length / 2.6));
    for (const r of releases) {
      nodes.push(svg("circle", { class: "published", cx: x(r.tick), cy: y(r.values[place]), r: size }));
    }
    for (const tick of gaps) {
      nodes.push(svg("line", { class: "gap", x1: x(tick), x2: x(tick), y1: bottom - 8, y2: bottom }));
    }
    const last = estimated.at(-1);
    if (last) nodes.push(svg("circle", { class: "newest", cx: x(last.tick), cy: y(last.estimate[place]), r: 5.5 }));
    const cross = svg("line", { class: "cross", y1: margin.top, y2: bottom, visibility: "hidden" });
    nodes.push(cross);
    return { height, nodes, hover: pointed(releases, x, cross, read) };
  };
}

function drawRun(run, x, y, place) {
  const banded = run.filter((r) => band(r, place).length > 0);
  const edge = (side) => banded.map((r) => [x(r.tick), y(band(r, place)[side])]);
  return [
    ...(banded.length > 0 ? [svg("path", { class: "band", d: `${path([...edge(1), ...edge(0).reverse()])}Z` })] : []),
    svg("path", { class: "estimate", d: path(run.map((r) => [x(r.tick), y(r.estimate[place])])) }),
  ];
}

function pointed(releases, x, cross, read) {
  const distance = (release, at) => Math.abs(x(release.tick) - at);
  return {
    move: (at) => {
      const nearest = releases.reduce((best, r) => (distance(r, at) < distance(best, at) ? r : best));
      for (const end of ["x1", "x2"]) cross.setAttribute(end, x(nearest.tick));
      cross.setAttribute("visibility", "visible");
      read(nearest);
    },
    leave: () => {
      cross.setAttribute("visibility", "hidden");
      read(null);
    },
  };
}

/** The chart of leakage after each release, of the leakage now, and of the limit. */
export function drawLeakage(releases, { present, limit, ...time }) {
  return (width) => {
    const height = 190;
    const margin = { left: 46, right: 50, top: 18, bottom: 26 };
    const right = width - margin.right;
    const most = Math.max(limit ?? 0, ...releases.map((r) => r.epsilon_s)) * 1.08 || 1;
    const y = linear([0, most], [height - margin.bottom, margin.top]);
    const { x, ...axis } = timeAxis(releases[0], time, width, margin);
    const nodes = frame({ width, height, margin, x, y, ...axis, yTicks: ticks(0, most, 4), yText: given });
    for (const value of ticks(0, most, 4)) {
      nodes.push(svg("text", { x: right + 8, y: y(value) + 4 }, value === 0 ? "50 %" : chance(value)));
    }
    const spot = (r) => [x(r.tick), y(r.epsilon_s)];
    for (const run of runs(releases)) nodes.push(svg("path", { class: "leak", d: path(run.map(spot)) }));
    if (Number.isFinite(present)) {
      const now = [x(time.now), y(present)];
      nodes.push(svg("path", { class: "leak fading", d: path([spot(releases.at(-1)), now]) }));
      nodes.push(svg("circle", { class: "newest", cx: now[0], cy: now[1], r: 5 }));
    }
    if (limit !== null) {
      const text = { class: "limit-text", x: right, y: y(limit) - 6, "text-anchor": "end" };
      nodes.push(svg("line", { class: "limit", x1: margin.left, x2: right, y1: y(limit), y2: y(limit) }));
      nodes.push(svg("text", text, `limit ${withChance(limit, given(limit))}`));
    }
    return { height, nodes };
  };
}
