// Drawing by hand: scales, axes, and a chart that is drawn anew whenever its data or its width changes.

import { el, svg } from "./dom.js";

/** A chart in a container: `draw(width)` gives SVG nodes and a height; words stand in where there is nothing. */
export class Chart {
  #container;
  #draw = null;
  #width = 0;
  #waiting = false;

  constructor(container) {
    this.#container = container;
    new ResizeObserver(([{ contentRect }]) => {
      if (Math.abs(contentRect.width - this.#width) < 1) return; // only the height has changed, through us
      this.#later();
    }).observe(container);
  }

  /** `label` is what a screen reader says; `words` replaces the drawing if there is nothing to draw. */
  show({ label = "", draw = null, words = null }) {
    this.#draw = { label, draw, words };
    this.#later();
  }

  #later() {
    if (this.#waiting || this.#draw === null) return;
    this.#waiting = true;
    requestAnimationFrame(() => { this.#waiting = false; this.#now(); });
  }

  #now() {
    this.#width = this.#container.clientWidth;
    if (this.#width === 0) return; // hidden: drawn when it is shown
    const { label, draw, words } = this.#draw;
    if (words !== null) {
      this.#container.replaceChildren(el("p", { class: "empty" }, words));
      return;
    }
    const { height, nodes, hover = null } = draw(this.#width);
    const viewBox = `0 0 ${this.#width} ${height}`;
    const picture = svg("svg", { viewBox, height, role: "img", "aria-label": label }, ...nodes);
    if (hover !== null) {
      const left = () => picture.getBoundingClientRect().left;
      picture.addEventListener("pointermove", (event) => hover.move(event.clientX - left()));
      picture.addEventListener("pointerleave", hover.leave);
    }
    this.#container.replaceChildren(picture);
  }
}

const round = (value) => Math.round(value * 10) / 10;

export function linear([from, to], [start, end]) {
  const width = to - from || 1;
  return (value) => round(start + (value - from) / width * (end - start));
}

export function logarithmic([from, to], range) {
  const scale = linear([Math.log(from), Math.log(to)], range);
  return (value) => scale(Math.log(value));
}

/** About `count` round numbers that cover a range. */
export function ticks(from, to, count) {
  const rough = (to - from) / Math.max(count, 1);
  if (!(rough > 0)) return [from];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999);
  const found = [];
  for (let n = Math.ceil(from / step - 1e-9); n * step <= to + 1e-9 * step; n += 1) {
    found.push(Number((n * step).toPrecision(12)));
  }
  return found;
}

/** Round numbers of a logarithmic range, about `count`: powers of ten, and 2 and 5 times them where there is room. */
export function decades(from, to, count) {
  if (Math.log10(to / from) * 3 <= count) {
    return logTicks(from, to).filter((value) => value >= from && value <= to);
  }
  const first = Math.ceil(Math.log10(from) - 1e-9);
  const last = Math.floor(Math.log10(to) + 1e-9);
  const stride = Math.max(1, Math.ceil((last - first + 1) / count));
  const found = [];
  for (let n = first; n <= last; n += stride) found.push(Number(`1e${n}`));
  return found;
}

function logTicks(from, to) {
  const found = [];
  for (let n = Math.floor(Math.log10(from)); n <= Math.log10(to); n += 1) {
    for (const digit of [1, 2, 5]) found.push(Number(`${digit}e${n}`));
  }
  return found;
}

/** A range with room around it. */
export function widened(from, to, part = 0.06) {
  const room = (to - from || Math.abs(to) || 1) * part;
  return [from - room, to + room];
}

/** The frame of a chart: horizontal grid with numbers, the x axis with its labels and its name. */
export function frame({ width, height, margin, y, yTicks, yText, x, xTicks, xText, xName, yName }) {
  const right = width - margin.right;
  const bottom = height - margin.bottom;
  const nodes = [];
  for (const value of yTicks) {
    nodes.push(svg("line", { class: "grid", x1: margin.left, x2: right, y1: y(value), y2: y(value) }));
    nodes.push(svg("text", { x: margin.left - 8, y: y(value) + 4, "text-anchor": "end" }, yText(value)));
  }
  nodes.push(svg("line", { class: "axis", x1: margin.left, x2: right, y1: bottom, y2: bottom }));
  for (const value of xTicks) {
    nodes.push(svg("line", { class: "axis", x1: x(value), x2: x(value), y1: bottom, y2: bottom + 4 }));
    nodes.push(svg("text", { x: x(value), y: bottom + 17, "text-anchor": "middle" }, xText(value)));
  }
  if (xName) nodes.push(svg("text", { x: (margin.left + right) / 2, y: height - 3, "text-anchor": "middle" }, xName));
  if (yName) nodes.push(svg("text", { x: 0, y: 12 }, yName));
  return nodes;
}

/** A path through points; a null point lifts the pen. */
export function path(points) {
  let down = false;
  return points.map((point) => {
    if (point === null) { down = false; return ""; }
    const text = `${down ? "L" : "M"}${point[0]} ${point[1]}`;
    down = true;
    return text;
  }).join("");
}

const upright = (kind, x, from, to) => svg("line", { class: kind, x1: x, x2: x, y1: from, y2: to });

/** Horizontal bars with their names above: {name, value, text, kind, mark} each; `limit` draws a line through all. */
export function bars(rows, { width, limit = null, limitText = "" }) {
  const tall = 40;
  const top = limit === null ? 0 : 20;
  const finite = rows.map((row) => row.value).filter(Number.isFinite);
  const most = Math.max(...finite, ...rows.map((row) => row.mark ?? 0), limit ?? 0) * 1.08 || 1;
  const x = linear([0, most], [0, width]);
  const nodes = [];
  rows.forEach((row, place) => {
    const y = top + place * tall;
    nodes.push(svg("text", { class: "strong", x: 0, y: y + 13 }, row.name));
    nodes.push(svg("text", { x: width, y: y + 13, "text-anchor": "end" }, row.text));
    nodes.push(svg("rect", { class: "bar-back", x: 0, y: y + 19, width, height: 12, rx: 3 }));
    const length = Number.isFinite(row.value) ? Math.max(x(row.value), 2) : width;
    nodes.push(svg("rect", { class: `bar-fill ${row.kind ?? ""}`, x: 0, y: y + 19, width: length, height: 12, rx: 3 }));
    if (limit !== null) nodes.push(upright("limit solid", x(limit), y + 15, y + 35));
    if (row.mark !== undefined) nodes.push(upright("mark", x(row.mark), y + 16, y + 34));
  });
  if (limit !== null) {
    const at = Math.min(Math.max(x(limit), 40), width - 40);
    nodes.push(svg("text", { class: "limit-text", x: at, y: 11, "text-anchor": "middle" }, limitText));
  }
  return { height: top + rows.length * tall, nodes };
}
