// What the numbers mean, for people who did not study privacy.

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
  missing: "readings were missing",
};

export const NOT_PROMISED = [
  "Old readings are not protected like the present: once a reading is old enough to be published, only noise hides it.",
  "A person who is in the data for a long time is protected less and less with every release.",
  "The numbers for the present and for any moment hold if the sequences behave as the model says. The other two hold "
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
