// An entry of the ledger in words.

import { row } from "./dom.js";
import { leakage, longTime, withChance } from "./numbers.js";
import { ENTRIES, REASONS } from "./words.js";

/** What happened, as a row of the table. */
export function entryRow(entry) {
  const parts = [ENTRIES[entry.kind] ?? entry.kind];
  if (entry.charge?.present !== undefined) {
    parts.push(`leakage about the present ${withChance(leakage(entry.charge.present))}`);
  }
  if (entry.kind === "refuse") parts.push(REASONS[entry.reason] ?? entry.reason);
  return row(
    { text: String(entry.seq), "data-label": "Entry" },
    { text: entry.tick === null ? "–" : String(entry.tick), "data-label": "Step" },
    { text: parts.join(" – "), class: entry.kind === "refuse" ? "what refused" : "what" },
    { text: longTime(entry.recorded), "data-label": "Written" },
  );
}
