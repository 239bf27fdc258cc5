// What the numbers mean, for people who did not study privacy.

import { leakage, withChance } from "./numbers.js";

/** Whether numbers that need the model may be relied on. */
export const reliable = ({ status }) => ["accepted", "declared"].includes(status);

export const ENTRIES = {
  open: "Dataset opened: plan and limits are fixed",
  change: "Plan changed",
  plan: "Plan changed",
  reserve: "Charged, before anything was published",
  commit: "Published",
  refuse: "Refused: no number for this step",
  skip: "No number for this step",
  lost: "Lost: charged, never published",
};

export const REASONS = {
  budget: "it would have exceeded the limit on the present",
  event_limit: "it would have exceeded the limit of a single reading",
  moment_limit: "it would have exceeded the limit on any moment",
  window_limit: "it would have exceeded the limit of readings in a row",
  missing: "readings were missing",
};

/** How a state that is past is protected, in numbers. */
export function past({ guarantee }, { every_moment: now }) {
  const ever = leakage(guarantee.every_moment);
  return Number.isFinite(ever)
    ? `A past state is protected with epsilon ${withChance(leakage(now))}, as any moment is, and not like the present.`
    : `What everything published reveals about any past state, epsilon ${withChance(leakage(now))} so far, grows with every `
      + "number under this model. More noise slows it down; a model with influences in both directions of time bounds it.";
}

export const NOT_PROMISED = [
  "A person who is in the data for a long time is protected less and less with every release.",
  "The numbers for the present and for any moment hold if the sequences behave as the model says. The others hold "
    + "without it.",
  "When something is published, and which readings were missing, is not hidden. It must not depend on the values.",
  "What is published of the same readings elsewhere is not counted.",
];

const ASK = "the person who runs the service for a reader key.";
const STATUS = {
  0: "The service cannot be reached. Check the connection; the page tries again by itself.",
  401: `This key is not known to the service. Check that it was copied completely, or ask ${ASK}`,
  403: `This key may not read published numbers. Ask ${ASK}`,
  429: "Too many requests in a short time. Wait a moment, then try again.",
  503: "The service is busy. The page asks again by itself in a moment.",
};

/** What a person can do about a failed request. */
export function trouble({ status, title, detail }) {
  return STATUS[status] ?? (detail || title || `The service answered with status ${status}.`);
}
