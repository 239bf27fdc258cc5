// Numbers as text. A leakage is never shown below its value, a remainder never above it.

const DIGITS = 4;

/** A leakage from JSON, which writes infinity as text; what is unknown stays unknown. */
export function leakage(value) {
  if (value === undefined || value === null) return undefined;
  return typeof value === "number" ? value : Infinity;
}

function plain(number) {
  if (number === 0) return "0";
  const size = Math.abs(number);
  if (size < 1e-6 || size >= 1e9) return number.toExponential().replace("e+", "e");
  return number.toLocaleString("en", { maximumFractionDigits: 12, useGrouping: size >= 10000 });
}

/** Rounded to `digits` significant digits in one direction: up = 1, down = -1. */
function towards(value, direction, digits) {
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
  const rounded = Number(`${mantissa}e${exponent}`);
  if (direction * (rounded - value) >= 0) return rounded;
  const last = Number(exponent) - digits + 1;
  const whole = Math.round(Number(mantissa) * 10 ** (digits - 1)) + direction;
  return Number(`${whole}e${last}`);
}

/** Rounded up: for leakages and errors. */
export function up(value, digits = DIGITS) {
  if (value === undefined || value === null || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return "infinite";
  return plain(towards(value, 1, digits));
}

/** Rounded down: for what remains. */
export function down(value, digits = DIGITS) {
  if (value === undefined || value === null || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return "infinite";
  return plain(towards(value, -1, digits));
}

/** To the nearest: for published numbers and estimates. */
export function near(value, digits = DIGITS) {
  if (value === undefined || value === null || !Number.isFinite(value)) return "–";
  return plain(Number(value.toPrecision(digits)));
}

/** As it was given: for settings and limits. */
export function given(value) {
  if (value === undefined || value === null) return "–";
  return Number.isFinite(value) ? plain(value) : "infinite";
}

export function percentUp(part, whole) {
  return `${up(100 * part / whole, 3)} %`;
}

/** "74 %": what a 50 % guess about one of two values becomes at most by a leakage, rounded up. */
export function chance(epsilon) {
  if (epsilon === undefined || epsilon === null || Number.isNaN(epsilon)) return "–";
  const likely = 1 / (1 + Math.exp(-epsilon));
  if (likely < 0.501) return "50.1 %";
  if (likely > 0.999) return "100 %";
  return `${up(100 * likely * (1 + 1e-15), likely < 0.51 || likely > 0.99 ? 3 : 2)} %`;
}

/** "0.9995 (74 %)": a leakage, and what a 50 % guess becomes. */
export const withChance = (epsilon, text = up(epsilon)) => `${text} (${chance(epsilon)})`;

/** "a 50 % guess becomes at most 74 %": what an epsilon does to a guess, and to odds. */
export function odds(epsilon) {
  if (!Number.isFinite(epsilon)) return "nothing is promised: a 50 % guess can become certainty";
  const factor = Math.exp(epsilon) * (1 + 1e-12);
  if (factor > 1e6) return "a 50 % guess can become certainty (odds of more than a million to 1)";
  const guess = `a 50 % guess about one of two present states becomes at most ${chance(epsilon)}`;
  return `${guess} (odds of at most ${up(factor, 3)} to 1)`;
}

export function steps(count) {
  return `${count} step${count === 1 ? "" : "s"}`;
}

// times from about 1973 on are seconds since 1970; smaller ones are a count of the dataset's own
const isClock = (time) => Math.abs(time) > 1e8;

const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
const CLOCK = new Intl.DateTimeFormat("en-GB", TIME);
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", ...TIME });

export function longTime(time) {
  if (time === undefined || time === null) return "–";
  if (typeof time === "string") {
    const moment = Date.parse(time);
    return Number.isNaN(moment) ? time : DAY.format(moment);
  }
  return isClock(time) ? DAY.format(time * 1000) : plain(time);
}

export function shortTime(time) {
  return isClock(time) ? CLOCK.format(time * 1000) : longTime(time);
}

/** How to write the times of an axis: as short as step and span allow. */
export function axisTime(first, span, step) {
  if (!isClock(first)) return longTime;
  const options = span > 86400 ? { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }
    : { hour: "2-digit", minute: "2-digit", ...(step % 60 === 0 && first % 60 === 0 ? {} : { second: "2-digit" }) };
  const format = new Intl.DateTimeFormat("en-GB", options);
  return (time) => format.format(time * 1000);
}
