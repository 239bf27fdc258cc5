// The planning view: what other ages and noise levels would give, from the points that are stored with the plan.

import { agesOf } from "./ages.js";
import { Chart } from "./charts.js";
import { byId, say, show } from "./dom.js";
import { showFrontier } from "./frontier.js";
import { chance, given, leakage, near, odds, steps, up, withChance } from "./numbers.js";

const LEVELS = 60;
const USEFUL = 0.05; // share of the squared error of guessing the usual value that is worth a release

export class PlanningView {
  #dataset;
  #ages = [];
  #levels = [];
  #chart;

  constructor() {
    this.#chart = new Chart(byId("frontier-chart"));
    for (const id of ["age", "noise"]) byId(id).addEventListener("input", () => this.shown());
    byId("reset").addEventListener("click", () => {
      this.#inUse();
      this.shown();
    });
  }

  open(dataset) {
    this.#dataset = dataset;
    const there = dataset.frontier !== null;
    show("planner", there);
    show("frontier-card", there);
    show("no-frontier", !there);
    if (!there) return;
    this.#ages = [...new Set(dataset.frontier.points.map((point) => point.age))].sort((a, b) => a - b);
    this.#levels = levels(dataset.frontier.points.map((point) => point.epsilon_c));
    byId("age").max = this.#ages.length - 1;
    byId("noise").max = this.#levels.length - 1;
    this.#inUse();
    this.shown();
  }

  /** The setting that is published, as near as the points have it. */
  #inUse() {
    const { least, most } = agesOf(this.#dataset);
    const level = this.#dataset.epsilon_c;
    byId("age").value = Math.max(0, this.#ages.indexOf(least));
    byId("noise").value = Math.max(0, this.#levels.findIndex((one) => one >= level));
    const age = least === most ? `age ${steps(least)}` : `different ages, the smallest is ${steps(least)}`;
    const mixed = least === most ? "" : " Here all sequences are given one age.";
    say("plan-in-use", `In use: ${age}, ε_c ${withChance(level, near(level))}.${mixed}`);
  }

  /** Show what the chosen setting gives. Between two points both numbers are those of the worse one. */
  shown() {
    if (!this.#dataset?.frontier) return;
    const { points, no_data: none, releases, about } = this.#dataset.frontier;
    const [age, level] = [this.#ages[Number(byId("age").value)], this.#levels[Number(byId("noise").value)]];
    const line = points.filter((point) => point.age === age).sort((a, b) => a.epsilon_c - b.epsilon_c);
    const above = line.find((point) => point.epsilon_c >= level) ?? line.at(-1);
    const below = line.findLast((point) => point.epsilon_c <= level) ?? line[0];
    const [certified, mse] = [leakage(above.leakage), below.mse];
    say("age-value", steps(age));
    say("noise-value", `ε_c = ${near(level)}`);
    say("noise-means", `It turns a 50 % guess about one old reading into at most ${chance(level)}.`);
    byId("age").setAttribute("aria-valuetext", steps(age));
    byId("noise").setAttribute("aria-valuetext", `epsilon c ${near(level)}`);
    say("answer-leakage", up(certified));
    const words = odds(certified);
    say("answer-words", words[0].toUpperCase() + words.slice(1));
    say("answer-linear", up(Math.sqrt(mse)));
    say("answer-about", about === "now" ? "the present" : "the time of the readings");
    say("answer-none", up(Math.sqrt(none)));
    say("answer-spoken", `Leakage ${withChance(certified)}, typical error of the estimate ${up(Math.sqrt(mse))}.`);
    this.#showVerdict(certified, 1 - mse / none);
    const limit = releases === 1 ? null : this.#dataset.limits.budget;
    const at = { leakage: certified, error: Math.sqrt(mse) };
    showFrontier(this.#chart, this.#dataset.frontier, { at, limit });
  }

  /** Usefulness first, then the limit. */
  #showVerdict(certified, removed) {
    const limit = this.#dataset.limits.budget;
    const [worthless, refused] = [removed < USEFUL, limit !== null && certified > limit];
    const said = [`Removes ${Math.max(0, Math.floor(100 * removed))} % of the squared error of guessing the usual value.`];
    if (worthless) said.push("That is hardly worth publishing: try less noise or younger data.");
    const bound = limit === null ? "" : withChance(limit, given(limit));
    if (refused) said.push(`Above the dataset's limit ${bound}: numbers would be refused.`);
    else if (limit !== null) said.push(`Within the dataset's limit ${bound}.`);
    byId("answer-verdict").className = worthless || refused ? "verdict warn" : "verdict";
    say("answer-verdict", said.join(" "));
  }
}

/** Noise levels of the slider: those of the points, and round numbers between them on a logarithmic scale. */
function levels(known) {
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const found = new Set(known);
  for (let place = 0; place <= LEVELS; place += 1) {
    const level = Number((least * (most / least) ** (place / LEVELS)).toPrecision(2));
    if (level > least && level < most) found.add(level);
  }
  return [...found].sort((a, b) => a - b);
}
