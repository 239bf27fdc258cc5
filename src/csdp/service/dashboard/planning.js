// The planning view: what other ages and noise levels would give. It asks the service and computes nothing of its own.

import { agesOf } from "./ages.js";
import { Chart, bars } from "./charts.js";
import { DelayQuestion } from "./delay.js";
import { byId, fill, number, row, say, show } from "./dom.js";
import { showFrontier } from "./frontier.js";
import { chance, given, leakage, near, odds, steps, up, withChance } from "./numbers.js";
import { meaning, trouble } from "./words.js";

const PAUSE = 120; // milliseconds that a slider must rest before the service is asked
const REST = 300; // milliseconds more before it is asked a question that takes it long
const PATIENCE = 3000; // milliseconds until a busy service is asked again
const KEEP = 400; // answers kept
const OLDEST = 20;
const [LEAST, MOST, LEVELS] = [0.05, 10, 60];
const ONCE = "1";
const USEFUL = 0.05; // share of the squared error of guessing the usual value that is worth a release

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** Whether waiting heals it: a busy service, too many questions, a lost connection. */
const again = (error) => [0, 429, 503].includes(error.status);

export class PlanningView {
  #service;
  #dataset;
  #signal;
  #answers = new Map();
  #frontiers = new Map();
  #levels = [];
  #timer = null;
  #busy = false;
  #answer = null; // of the setting as it is published
  #single = null; // of one number alone
  #found = null; // the trade-off that is shown
  #charts;
  #delay = new DelayQuestion();

  constructor() {
    this.#charts = { bounds: new Chart(byId("bounds-chart")), frontier: new Chart(byId("frontier-chart")) };
    for (const id of ["age", "noise"]) byId(id).addEventListener("input", () => this.#changed());
    for (const radio of document.getElementsByName("releases")) radio.addEventListener("change", () => this.shown());
    byId("reset").addEventListener("click", () => {
      this.#inUse();
      this.#changed();
    });
    byId("frontier-more").addEventListener("click", () => {
      this.#frontier("continual");
      byId("frontier-title").focus(); // the button is gone
    });
  }

  open(service, dataset, signal) {
    clearTimeout(this.#timer);
    this.#delay.open(service, dataset, signal);
    [this.#service, this.#dataset, this.#signal] = [service, dataset, signal];
    this.#answers.clear();
    this.#frontiers.clear();
    [this.#answer, this.#single, this.#found, this.#busy] = [null, null, null, false];
    this.#levels = levels(dataset.epsilon_c);
    this.#inUse();
    this.#label();
  }

  /** Ask when the view is looked at: planning is work for the service. */
  shown() {
    this.#changed();
    this.#frontier();
  }

  // ---- the setting ----

  #inUse() {
    const { least, most } = agesOf(this.#dataset);
    const level = this.#dataset.epsilon_c;
    byId("age").max = Math.max(OLDEST, most);
    byId("age").value = least;
    byId("noise").max = this.#levels.length - 1;
    byId("noise").value = this.#levels.indexOf(level);
    const age = least === most ? `age ${steps(least)}` : `different ages, the smallest is ${steps(least)}`;
    const mixed = least === most ? "" : " Here all sequences are given one age.";
    say("plan-in-use", `In use: ${age}, ε_c ${withChance(level, near(level))}.${mixed}`);
  }

  get #setting() {
    return {
      age: Number(byId("age").value),
      epsilon_c: this.#levels[Number(byId("noise").value)],
      releases: document.querySelector('input[name="releases"]:checked').value,
    };
  }

  get #limit() {
    return this.#dataset.limits.budget;
  }

  #label() {
    const { age, epsilon_c: level } = this.#setting;
    say("age-value", steps(age));
    say("noise-value", `ε_c = ${near(level)}`);
    say("noise-means", `It turns a 50 % guess about one old reading into at most ${chance(level)}.`);
    byId("age").setAttribute("aria-valuetext", steps(age));
    byId("noise").setAttribute("aria-valuetext", `epsilon c ${near(level)}`);
  }

  // ---- asking ----

  #changed() {
    this.#label();
    clearTimeout(this.#timer);
    const single = { ...this.#setting, releases: ONCE };
    this.#answer = null;
    byId("answer").setAttribute("aria-busy", "true");
    if (this.#kept(single) !== undefined) this.#quick(single);
    else {
      say("answer-verdict", "Computing …");
      this.#timer = setTimeout(() => this.#quick(single), PAUSE);
    }
  }

  /** One number alone is computed at once: it gives the errors for both ways of publishing. */
  async #quick(single) {
    const answer = await this.#ask(single);
    const setting = this.#setting;
    if (answer === null || !same({ ...setting, releases: ONCE }, single)) return;
    this.#showErrors(answer);
    const known = this.#kept(setting);
    if (known !== undefined) {
      this.#show(known);
      return;
    }
    say("answer-leakage", "computing …");
    say("answer-words", "…");
    this.#timer = setTimeout(() => this.#slow(), REST);
  }

  /** Publishing without end takes the service longer: one question at a time, and then the newest one. */
  async #slow() {
    if (this.#busy) return;
    this.#busy = true;
    const setting = this.#setting;
    const answer = await this.#ask(setting);
    this.#busy = false;
    if (!same(this.#setting, setting)) {
      if (this.#kept(this.#setting) === undefined) this.#slow();
    } else if (answer !== null) this.#show(answer);
  }

  #kept(setting) {
    return this.#answers.get(JSON.stringify(setting));
  }

  /** The answer of the service, from memory where it is known; null where there is none. */
  async #ask(setting) {
    const known = this.#kept(setting);
    if (known !== undefined) return known;
    const signal = this.#signal;
    try {
      const answer = await this.#service.of(this.#dataset.name, "what-if", setting, { signal });
      if (signal.aborted) return null;
      if (this.#answers.size >= KEEP) this.#answers.delete(this.#answers.keys().next().value);
      this.#answers.set(JSON.stringify(setting), answer);
      return answer;
    } catch (error) {
      if (signal.aborted) return null;
      say("answer-error", trouble(error));
      if (again(error)) this.#timer = setTimeout(() => this.#changed(), PATIENCE);
      else byId("answer").setAttribute("aria-busy", "false");
      return null;
    }
  }

  // ---- showing ----

  #showErrors(answer) {
    this.#single = answer;
    say("answer-error", "");
    say("answer-once", up(leakage(answer.certified)));
    say("answer-once-means", `(${chance(leakage(answer.certified))})`);
    say("answer-raw", up(Math.sqrt(answer.mse.raw)));
    say("answer-linear", up(Math.sqrt(this.#present(answer))));
    say("answer-then", up(Math.sqrt(answer.mse.then)));
    say("answer-none", up(Math.sqrt(answer.no_data)));
    say("answer-event", `ε = ${up(leakage(answer.event_level))}`);
    say("answer-event-means", `(${chance(leakage(answer.event_level))})`);
    this.#drawFrontier();
  }

  /** Squared error of the estimate of the present: from one number, or from the last of many. */
  #present({ mse }) {
    return this.#setting.releases === ONCE ? mse.linear : mse.history;
  }

  #show(answer) {
    this.#answer = answer;
    const certified = leakage(answer.certified);
    const [words, error] = [odds(certified), up(Math.sqrt(this.#present(answer)))];
    say("answer-error", "");
    say("answer-leakage", up(certified));
    say("answer-words", words[0].toUpperCase() + words.slice(1));
    say("answer-spoken", `Leakage ${withChance(certified)}, typical error of the estimate ${error}.`);
    this.#showVerdict(certified, answer);
    byId("answer").setAttribute("aria-busy", "false");
    this.#drawBounds(answer, certified);
    this.#drawFrontier();
  }

  /** Usefulness first, then the limit. */
  #showVerdict(certified, answer) {
    const { no_data: none, releases, approximate } = answer;
    const limit = this.#limit;
    const removed = 1 - this.#present(answer) / none;
    const [worthless, refused] = [removed < USEFUL, limit !== null && certified > limit];
    const assumed = approximate ? ", if each reading had the value of its state" : "";
    const said = [`Removes ${Math.max(0, Math.floor(100 * removed))} % of the squared error of guessing the usual value${assumed}.`];
    if (worthless) said.push("That is hardly worth publishing: try less noise, younger data, or numbers about the time of the readings.");
    const bound = limit === null ? "" : withChance(limit, given(limit));
    if (refused) said.push(`Above the dataset's limit ${bound}: numbers would be refused.`);
    else if (limit !== null && releases !== ONCE) said.push(`Within the dataset's limit ${bound}.`);
    else if (limit !== null) said.push(`One number alone is within the limit ${bound}; more numbers leak more.`);
    byId("answer-verdict").className = worthless || refused ? "verdict warn" : "verdict";
    say("answer-verdict", said.join(" "));
  }

  #drawBounds(answer, certified) {
    const list = (values, proven) => Object.entries(values)
      .map(([bound, value]) => ({ bound, value: leakage(value), proven, best: proven && bound === answer.bound }))
      .sort((a, b) => a.value - b.value);
    const found = [...list(answer.leakage, true), ...list(answer.unproven, false)];
    const kind = ({ proven, best }) => (best ? "best" : proven ? "" : "unproven");
    const suffix = ({ proven, best }) => (best ? " – counts" : proven ? "" : " – not proven");
    const limit = this.#limit;
    const drawn = found.map((one) => ({
      name: one.bound + suffix(one), value: one.value, text: withChance(one.value), kind: kind(one),
    }));
    this.#charts.bounds.show({
      label: `Bars of the leakage by bound, smallest ${withChance(certified)}. A table follows.`,
      draw: (width) => bars(drawn, { width, limit, limitText: `limit ${withChance(limit, given(limit))}` }),
    });
    fill("bounds-table", found.map((one) => {
      const status = one.best ? "proven, smallest" : one.proven ? "proven" : "not proven";
      const likely = { ...number(chance(one.value)), "data-label": "A 50 % guess becomes at most" };
      const cost = { ...number(up(one.value)), "data-label": "Leakage" };
      const line = row(one.bound, cost, likely, status, meaning(one.bound));
      line.className = kind(one);
      return line;
    }));
  }

  // ---- the trade-off ----

  /** Of one number at once; of publishing without end only on request, because it takes the service long. */
  async #frontier(asked = null) {
    const often = this.#setting.releases !== ONCE;
    const releases = asked ?? (often && this.#frontiers.has("continual") ? "continual" : ONCE);
    const [dataset, signal] = [this.#dataset, this.#signal];
    show("frontier-more", often && releases === ONCE);
    if (!this.#frontiers.has(releases)) {
      this.#charts.frontier.show({ words: "Computing the trade-off …" });
      this.#frontiers.set(releases, this.#service.of(dataset.name, "frontier", { releases }, { signal }));
    }
    try {
      const found = await this.#frontiers.get(releases);
      if (signal.aborted || (releases !== ONCE && this.#setting.releases === ONCE)) return;
      this.#found = found;
      this.#drawFrontier();
    } catch (error) {
      if (signal.aborted) return;
      this.#frontiers.delete(releases);
      const words = again(error) ? "Still computing the trade-off …" : trouble(error);
      this.#charts.frontier.show({ words });
      if (again(error)) setTimeout(() => { if (!signal.aborted) this.#frontier(releases); }, PATIENCE);
    }
  }

  #drawFrontier() {
    if (this.#found === null) return;
    const once = this.#found.releases === ONCE;
    const answer = once ? this.#single : this.#answer;
    const at = answer && { leakage: leakage(answer.certified), error: Math.sqrt(once ? answer.mse.linear : answer.mse.history) };
    showFrontier(this.#charts.frontier, this.#found, { at, limit: once ? null : this.#limit });
  }
}

/** Noise levels of the slider: round numbers, evenly spread on a logarithmic scale, and the one in use. */
function levels(inUse) {
  const found = new Set([inUse]);
  for (let place = 0; place <= LEVELS; place += 1) {
    found.add(Number((LEAST * (MOST / LEAST) ** (place / LEVELS)).toPrecision(2)));
  }
  return [...found].sort((a, b) => a - b);
}
