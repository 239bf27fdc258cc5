// What is promised for a dataset, and what is not.

import { el, fill, number, row, say } from "./dom.js";
import { chance, given, leakage, up, withChance } from "./numbers.js";
import { NOT_PROMISED, past, reliable } from "./words.js";

const ALWAYS = "always: plain differential privacy";

export function showPromise(dataset, status) {
  const limit = (name) => (dataset.limits[name] === null ? "none" : withChance(dataset.limits[name], given(dataset.limits[name])));
  const line = (protects, epsilon, bound, holds) => row(
    protects,
    { ...number(up(leakage(epsilon))), "data-label": "Epsilon now" },
    { ...number(chance(leakage(epsilon))), "data-label": "A 50 % guess becomes at most" },
    { ...number(bound), "data-label": "Limit" },
    { text: holds, "data-label": "Holds" },
  );
  say("promise-lead", `${dataset.model.words} For ${dataset.name}, by everything published so far.`);
  const sure = reliable(dataset.model);
  const held = `${sure ? "if" : "ONLY IF"} the sequences behave as the model says (${dataset.model.status})`;
  const plain = [
    line("One single reading, by all releases that use it", status.event_level, limit("event_limit"), ALWAYS),
    ...(status.window_level === null ? [] : [
      line(`Any ${dataset.limits.window} readings in a row of one sequence`, status.window_level, limit("window_limit"), ALWAYS),
    ]),
    line("All readings of sequences that belong together", status.group_level, "none", `${ALWAYS}; grows all the time`),
  ];
  const present = line("The present state of each sequence", status.present, limit("budget"), held);
  const moment = line("The state of each sequence at any one moment, past or present", status.every_moment, limit("moment_limit"), held);
  fill("promise-table", sure ? [present, moment, ...plain] : [...plain, present, moment]);
  const refused = "A number that would pass a limit is refused before any reading is touched.";
  say("promise-yes", sure
    ? `The present value of each sequence stays uncertain, within the leakage shown, to an attacker `
      + `who knows the model and every other present value and sees everything that was published here. ${refused}`
    : `The plain numbers at the top of the table: they hold under any model. ${refused}`);
  fill("promise-no", [past(dataset, status), ...dataset.not_protected, ...NOT_PROMISED].map((words) => el("li", {}, words)));
}
