// A budget that can be chosen while numbers are published: another plan, recorded in the ledger.

import { byId, say, show } from "./dom.js";
import { chance, given } from "./numbers.js";
import { trouble } from "./words.js";

export class BudgetChoice {
  #service;
  #dataset;
  #signal;
  #changed;

  /** `changed()` is called when the service publishes under another plan. */
  constructor(changed) {
    this.#changed = changed;
    byId("budget").addEventListener("input", () => this.#label());
    byId("budget").addEventListener("change", () => {
      if (this.#chosen < this.#dataset.limits.budget) this.#ask(false);
    });
    byId("budget-raise").addEventListener("click", () => this.#ask(true));
  }

  open(service, dataset, signal) {
    [this.#service, this.#dataset, this.#signal] = [service, dataset, signal];
    show("budget-card", dataset.budgets.length > 0);
    if (dataset.budgets.length === 0) return;
    byId("budget").max = dataset.budgets.length - 1;
    byId("budget").value = dataset.budgets.indexOf(dataset.limits.budget);
    byId("budget").disabled = false;
    this.#label();
  }

  get #chosen() {
    return this.#dataset.budgets[Number(byId("budget").value)];
  }

  #label() {
    const [chosen, inUse] = [this.#chosen, this.#dataset.limits.budget];
    const means = `all numbers together turn a 50 % guess about one present state into at most ${chance(chosen)}`;
    say("budget-value", `${given(chosen)} (${chance(chosen)})`);
    byId("budget").setAttribute("aria-valuetext", `${given(chosen)}: ${means}`);
    show("budget-raise", chosen > inUse);
    const heading = chosen === inUse ? "In use" : chosen > inUse ? "Larger than the limit in use" : "Smaller";
    say("budget-words", `${heading}: ${means}.${chosen > inUse
      ? " What was published still counts; the ledger keeps the record that the limit was raised." : ""}`);
  }

  async #ask(more) {
    const [service, dataset, signal, chosen] = [this.#service, this.#dataset, this.#signal, this.#chosen];
    byId("budget").disabled = true;
    show("budget-raise", false);
    say("budget-words", "Planning for this budget …");
    try {
      await service.put(dataset.name, "budget", { budget: chosen, allow_more: more }, { signal });
      if (!signal.aborted) await this.#changed();
    } catch (error) {
      if (signal.aborted) return;
      this.open(service, dataset, signal);
      say("budget-words", trouble(error));
    }
  }
}
