// How a dataset is doing: tiles, and the gauge of leakage against its limit.

import { byId, say, show, svg } from "./dom.js";
import { chance, down, given, leakage, odds, percentUp, steps, up, withChance } from "./numbers.js";
import { reliable } from "./words.js";

export function showStatus(status) {
  const present = leakage(status.present);
  const limit = status.budget;
  const sure = reliable(status.model);
  say("tile-belief", chance(sure ? present : leakage(status.event_level)));
  say("tile-belief-more", sure ? "about one present state, starting from a 50 % guess"
    : "about one reading, starting from a 50 % guess, under any model");
  say("tile-present-title", `Leakage about the present${sure ? "" : ", only if the model held"}`);
  say("tile-present", up(present));
  const ever = status.limits.moment_limit;
  say("tile-moment-title", `Leakage about any moment${sure ? "" : ", only if the model held"}`);
  say("tile-moment", up(leakage(status.every_moment)));
  say("tile-moment-more", ever === null ? `about any one state, past or present: ${chance(leakage(status.every_moment))}`
    : `${percentUp(leakage(status.every_moment), ever)} of the limit ${withChance(ever, given(ever))}`);
  const whole = limit === null ? "" : withChance(limit, given(limit));
  say("tile-present-more", limit === null ? "no limit is set" : `${percentUp(present, limit)} of the limit ${whole}`);
  showOutlook(status.outlook, limit);
  say("tile-published", String(status.published));
  const missed = [[status.refused, "refused"], [status.lost, "lost"]].filter(([count]) => count > 0);
  const said = missed.length > 0 ? missed.map(([count, name]) => `${count} ${name}`) : ["none refused"];
  if (status.newest_tick !== null) said.push(`newest step ${status.newest_tick}`);
  say("tile-published-more", said.join(", "));
  show("trouble", status.trouble !== "");
  say("trouble", status.trouble === "" ? "" : `Publishing waits: ${status.trouble}.`);
  showGauge(present, limit, status.remaining.budget);
}

/** How many numbers the limits still allow, or when publishing resumes. */
function showOutlook({ tick, ticks, rests, more, words }, limit) {
  const many = ticks === null ? "any number" : `${more ? "at least " : ""}${ticks}`;
  say("tile-allowed", tick === null ? "none" : rests > 0 ? `in ${steps(rests)}` : many);
  const said = tick === null ? "a limit is reached" : rests > 0 ? `publishing resumes at step ${tick}`
    : ticks === null ? "of releases, one at every step" : "releases in a row, one at every step";
  say("tile-allowed-more", limit === null && ticks === null ? "no limit is set" : said);
  show("outlook", rests > 0 || tick === null);
  say("outlook", rests > 0 || tick === null ? words : "");
}

function showGauge(present, limit, remaining) {
  const gauge = byId("gauge");
  gauge.hidden = limit === null;
  if (limit === null) {
    say("gauge-text", `${up(present)} – no limit is set. So far ${odds(present)}.`);
    return;
  }
  const part = Math.min(present / limit, 1);
  gauge.setAttribute("aria-valuemax", limit);
  gauge.setAttribute("aria-valuenow", Math.min(present, limit));
  gauge.setAttribute("aria-valuetext", `${up(present)} of ${given(limit)}`);
  gauge.replaceChildren(svg(
    "svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "bar-back", width: 100, height: 20 }),
    svg("rect", { class: `bar-fill${present > limit ? " over" : ""}`, width: 100 * part, height: 20 }),
  ));
  const left = `${down(remaining)} left`;
  say("gauge-text", `${up(present)} of at most ${withChance(limit, given(limit))}, ${left}: ${odds(present)}.`);
}
