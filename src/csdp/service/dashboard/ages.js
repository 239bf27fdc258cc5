// How old the data of each sequence is.

import { fill, number, row, say } from "./dom.js";
import { bars } from "./charts.js";
import { longTime, steps } from "./numbers.js";

const BARS = 8;
const ROWS = 200;

/** {least, most} of an age for all, or of one for each. */
export function agesOf(dataset) {
  const all = [dataset.ages].flat();
  return { least: all.reduce((a, b) => Math.min(a, b)), most: all.reduce((a, b) => Math.max(a, b)) };
}

function agesText(dataset) {
  const { least, most } = agesOf(dataset);
  return least === most ? steps(least) : `${least} to ${most} steps`;
}

/** Tile, chart and table; the oldest first. */
export function showAges(chart, dataset, status) {
  const ages = status.age_of_information.map((line, place) => ({ ...line, place }));
  ages.sort((a, b) => (b.age ?? Infinity) - (a.age ?? Infinity) || a.place - b.place);
  chart.show({
    label: "Bars of the age of each sequence's newest usable reading, oldest first. A table follows.",
    draw: (width) => bars(ages.slice(0, BARS).map(bar), { width }),
  });
  const few = ages.length > BARS ? `The ${BARS} oldest of ${ages.length} sequences. ` : "";
  const taken = status.watermark === null ? "" : ` Readings up to ${longTime(status.watermark)} are taken in.`;
  say("ages-more", `${few}The upright mark is the planned age, ${agesText(dataset)}; a longer bar means that readings are missing.${taken}`);
  say("ages-caption", ages.length > ROWS ? `The ${ROWS} oldest of ${ages.length}` : "Oldest first");
  fill("ages-table", ages.slice(0, ROWS).map(({ sequence, planned, age }) => row(
    sequence, number(String(planned)), number(age === null ? "no reading yet" : String(age)),
  )));
}

function bar({ sequence, planned, age }) {
  return {
    name: sequence,
    value: age ?? Infinity,
    mark: planned,
    kind: age === null || age > planned ? "over" : "",
    text: age === null ? "no reading yet" : steps(age),
  };
}
