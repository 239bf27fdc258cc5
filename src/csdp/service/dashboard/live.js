// The live view: published numbers, leakage against its limit, ages, the ledger.

import { agesOf, showAges } from "./ages.js";
import { Chart } from "./charts.js";
import { byId, el, fill, number, row, say, show } from "./dom.js";
import { History } from "./history.js";
import { entryRow } from "./ledger.js";
import { chance, given, leakage, longTime, near, percentUp, shortTime, steps, up, withChance } from "./numbers.js";
import { showPromise } from "./promise.js";
import { bandText, described, drawLeakage, drawSeries } from "./series.js";
import { showStatus } from "./status.js";
import { reliable } from "./words.js";

const ROWS = 60;
const ENTRIES = 10;
const SPEAK_EVERY = 15000; // milliseconds between announcements: a screen reader must come to an end
const LEDGER_EVERY = 1000;

export class LiveView {
  #service;
  #dataset;
  #signal;
  #history = new History();
  #status = null;
  #output = 0;
  #calendar = null; // (tick) => seconds since 1970, of a replay
  #charts;
  #unspoken = 0;
  #spoken = -Infinity;
  #speaking = null;
  #reading = null;
  #asked = -Infinity;

  constructor() {
    const chart = (name) => new Chart(byId(`${name}-chart`));
    this.#charts = { series: chart("series"), leak: chart("leak"), ages: chart("ages") };
    byId("window").addEventListener("change", () => this.#load().catch(() => this.#draw()));
    byId("output").addEventListener("change", (event) => {
      this.#output = Number(event.target.value);
      this.#draw();
    });
  }

  /** Show a dataset; returns the number of the newest entry that is shown, after which live events go on. */
  async open(service, dataset, signal) {
    clearTimeout(this.#speaking);
    clearTimeout(this.#reading);
    [this.#service, this.#dataset, this.#signal] = [service, dataset, signal];
    this.#history = new History();
    [this.#status, this.#unspoken, this.#speaking, this.#reading] = [null, 0, null, null];
    this.#introduce();
    await this.#findCalendar();
    await Promise.all([this.#statusNow(), this.#ledger(), this.#load()]);
    return this.#history.newest?.id ?? 0;
  }

  #introduce() {
    const { name, outputs, statistic } = this.#dataset;
    this.#output = 0;
    show("output-choice", outputs.length > 1);
    byId("output").replaceChildren(...outputs.map((output, place) => el("option", { value: place }, output)));
    say("live-title", name);
    const what = `${statistic[0].toUpperCase()}${statistic.slice(1)}`;
    const { estimate } = this.#dataset;
    const { model } = this.#dataset;
    show("live-doubt", !reliable(model));
    say("live-doubt", `${model.words} Rely on the level of a single reading: it holds under any model.`);
    show("live-verdict", reliable(model));
    say("live-verdict", model.words);
    say("live-worth", estimate === null ? "" : estimate.words);
    const removed = estimate?.usefulness ?? null;
    say("tile-worth", removed === null ? "–" : `${Math.max(0, Math.floor(100 * removed))} %`);
    const unknown = estimate === null ? "no estimate can be made" : "unknown: no public past of the readings";
    say("tile-worth-more", removed === null ? unknown : "of the squared error of guessing the usual value is removed");
    say("series-about", estimate?.about === "then" ? "about the time of the readings" : "about now");
    const { least, most } = agesOf(this.#dataset);
    say("ages-protect", most === 0 ? "No reading is held back: noise alone protects the present."
      : "Readings are held back for the planned age; that is what protects the present.");
    const held = most === 0 ? "Noise is added to every number" : "Every number is held back, and noise is added,";
    say("live-lead", `${what}. ${held} before it is published.`);
    const ago = least === most ? `${steps(least)} ago` : `${least} to ${most} steps ago`;
    say("series-age", most === 0 ? "this step" : ago);
  }

  /** The times of a recording that is replayed: its steps are not those of a clock. */
  async #findCalendar() {
    const signal = this.#signal;
    this.#calendar = null;
    show("replay", false);
    if (this.#dataset.budgets.length === 0) return;
    const { first_tick: first, times } = await this.#service.of(this.#dataset.name, "replay", {}, { signal });
    const seconds = times.map((time) => Date.parse(time) / 1000);
    this.#calendar = (tick) => seconds[tick - first] ?? tick;
    show("replay", true);
  }

  /** Keep a release; true if it is new. */
  #keep(release) {
    const time = this.#calendar === null ? release.time : this.#calendar(release.tick);
    return this.#history.add({ ...release, time });
  }

  get #window() {
    return Number(byId("window").value);
  }

  /** The newest tick that is over, with or without a number. */
  get #now() {
    return Math.max(this.#history.newest?.tick ?? -Infinity, this.#status?.closed_tick ?? -Infinity);
  }

  async #load() {
    const signal = this.#signal;
    const found = await this.#service.of(this.#dataset.name, "releases", { limit: this.#window }, { signal });
    if (signal.aborted) return;
    for (const release of found) this.#keep(release);
    this.#draw();
  }

  async #ledger() {
    this.#asked = performance.now();
    const signal = this.#signal;
    const entries = await this.#service.of(this.#dataset.name, "ledger", { limit: ENTRIES }, { signal });
    if (!signal.aborted) fill("ledger-table", entries.sort((a, b) => b.seq - a.seq).map(entryRow));
  }

  async #statusNow() {
    const signal = this.#signal;
    const status = await this.#service.of(this.#dataset.name, "status", {}, { signal });
    if (!signal.aborted) this.#take(status);
  }

  #take(status) {
    this.#status = status;
    showStatus(status);
    showAges(this.#charts.ages, this.#dataset, status);
    showPromise(this.#dataset, status);
    this.#draw();
  }

  /** An event of the stream. */
  event(kind, data) {
    if (kind === "status") {
      this.#take(data);
      return;
    }
    if (kind === "release") {
      if (this.#keep(data)) this.#announce();
      this.#draw();
    }
    this.#ledgerSoon();
  }

  /** The ledger again, at most once a second. */
  #ledgerSoon() {
    if (this.#reading !== null) return;
    const signal = this.#signal;
    this.#reading = setTimeout(() => {
      this.#reading = null;
      if (!signal.aborted) this.#ledger().catch(() => {}); // the stream of events tells of a lost connection
    }, Math.max(0, this.#asked + LEDGER_EVERY - performance.now()));
  }

  #announce() {
    this.#unspoken += 1;
    if (this.#speaking !== null) return;
    const signal = this.#signal;
    this.#speaking = setTimeout(() => {
      this.#speaking = null;
      if (signal.aborted) return;
      this.#spoken = performance.now();
      const newest = this.#history.newest;
      const many = this.#unspoken === 1 ? "One new number" : `${this.#unspoken} new numbers`;
      this.#unspoken = 0;
      say("announce", `${many}. Step ${newest.tick}: ${described(newest, this.#output)}`);
    }, Math.max(500, this.#spoken + SPEAK_EVERY - performance.now()));
  }

  #draw() {
    const releases = this.#history.last(this.#window, this.#now);
    const time = { now: this.#now, step: this.#dataset.step, calendar: this.#calendar };
    if (this.#calendar !== null && releases.length > 0) {
      say("replay", `A recording is replayed; its time is now ${longTime(this.#calendar(this.#now))}.`);
    }
    this.#drawNewest();
    this.#drawSeries(releases, time);
    this.#drawLeakage(releases.filter((r) => Number.isFinite(leakage(r.epsilon_s))), time);
    this.#fillTables(releases.slice(-ROWS).reverse());
  }

  #drawNewest() {
    const newest = this.#history.newest;
    if (newest === null) {
      say("tile-estimate", "–");
      say("tile-estimate-more", "nothing is published yet");
      return;
    }
    const estimate = newest.estimate[this.#output];
    say("tile-estimate", near(estimate ?? newest.values[this.#output], 3));
    const about = newest.about === "then" ? "about the time of the readings" : "about now";
    const what = estimate === undefined ? "published number" : `${bandText(newest, this.#output)} ${about}`.trim();
    say("tile-estimate-more", `${what}, ${shortTime(newest.time)}`);
  }

  /** Words where there is nothing to draw. */
  #nothing(releases) {
    if (releases.length > 0) return null;
    if (this.#history.newest !== null) return `No number in the last ${this.#window} steps.`;
    return "Nothing is published yet. The first number comes when readings are old enough.";
  }

  #drawSeries(releases, time) {
    const place = this.#output;
    const words = this.#nothing(releases);
    if (words !== null) {
      this.#charts.series.show({ words });
      return;
    }
    const read = (r) => say("series-readout", r && `Step ${r.tick}, ${longTime(r.time)}: ${described(r, place)}`);
    const newest = described(releases.at(-1), place);
    this.#charts.series.show({
      label: `Line chart of ${releases.length} published numbers, newest: ${newest} A table follows.`,
      draw: drawSeries(releases, { ...time, place, gaps: this.#history.gaps(releases[0].tick, time.now), read }),
    });
  }

  #drawLeakage(releases, time) {
    const limit = this.#dataset.limits.budget;
    const present = leakage(this.#status?.present);
    const words = this.#nothing(releases);
    const bound = limit === null ? "no limit is set" : `limit ${withChance(limit, given(limit))}`;
    const drawn = ["after each published number", "now (the last dot)", ...(limit === null ? [] : ["its limit (dashed)"])];
    say("leak-help", `Leakage: ${drawn.join(", ")}. On the right: what a 50 % guess becomes at most.`);
    this.#charts.leak.show({
      words,
      label: `Line chart of the leakage about the present, now ${withChance(present)}, ${bound}. A table follows.`,
      draw: drawLeakage(releases, { ...time, present, limit }),
    });
  }

  #fillTables(newestFirst) {
    const place = this.#output;
    const limit = this.#dataset.limits.budget;
    fill("series-table", newestFirst.map((r) => row(
      String(r.tick),
      longTime(r.time),
      number(near(r.values[place])),
      number(near(r.estimate[place])),
      number(near(r.standard_error[place], 3)),
      number(up(leakage(r.epsilon_s))),
      number(chance(leakage(r.epsilon_s))),
    )));
    fill("leak-table", newestFirst.map((r) => row(
      String(r.tick),
      longTime(r.time),
      number(up(leakage(r.epsilon_s))),
      number(chance(leakage(r.epsilon_s))),
      number(limit === null ? "no limit" : percentUp(leakage(r.epsilon_s), limit)),
    )));
  }
}
