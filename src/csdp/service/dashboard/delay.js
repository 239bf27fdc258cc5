// The first question of planning: how long must numbers about the time of the readings be held back?

import { byId, say } from "./dom.js";
import { chance, leakage, odds, steps, up } from "./numbers.js";
import { trouble } from "./words.js";

const BUDGET = 0.5; // where the dataset has no limit
const SHARE = 0.2; // largest error that is proposed, as a share of the typical error without any data

export class DelayQuestion {
  #service;
  #dataset;
  #signal;

  constructor() {
    byId("delay-budget").addEventListener("input", tellChance);
    byId("delay-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask();
    });
  }

  open(service, dataset, signal) {
    [this.#service, this.#dataset, this.#signal] = [service, dataset, signal];
    const none = dataset.estimate === null ? 1 : Math.sqrt(dataset.estimate.no_data);
    byId("delay-budget").value = dataset.limits.budget ?? BUDGET;
    byId("delay-error").value = Number((SHARE * none).toPrecision(2));
    say("delay-answer", "");
    say("delay-trouble", "");
    tellChance();
  }

  async #ask() {
    const signal = this.#signal;
    const asked = { budget: byId("delay-budget").value, max_error: byId("delay-error").value };
    say("delay-answer", "computing …");
    say("delay-trouble", "");
    try {
      const found = await this.#service.of(this.#dataset.name, "delay", asked, { signal });
      if (!signal.aborted) say("delay-answer", answered(found));
    } catch (error) {
      if (signal.aborted) return;
      say("delay-answer", "");
      say("delay-trouble", trouble(error));
    }
  }
}

/** What the leakage in the field means. */
function tellChance() {
  const given = Number(byId("delay-budget").value);
  say("delay-means", given > 0 ? `A 50 % guess about a present state becomes at most ${chance(given)}.` : "");
}

/** The answer in words: usefulness first. */
function answered({ delay, leakage: told, error, usefulness, words }) {
  if (delay === null) return words;
  const certified = leakage(told);
  const share = usefulness === null ? "an unknown share" : `${Math.floor(100 * usefulness)} %`;
  return `Hold every number back by ${steps(delay)}. It removes ${share} of the error of saying `
    + `nothing about the time of the readings (typical error ${up(error)}), and all numbers together tell at most `
    + `${up(certified)} about any present: ${odds(certified)}.`;
}
