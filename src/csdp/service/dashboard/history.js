// What was published of one dataset, as far as this page keeps it.

const KEEP = 1000;

export class History {
  #releases = new Map();

  /** True if the tick is new. */
  add(release) {
    const known = this.#releases.has(release.tick);
    this.#releases.set(release.tick, release);
    if (this.#releases.size > KEEP + 100) {
      const ticks = [...this.#releases.keys()].sort((a, b) => a - b);
      for (const tick of ticks.slice(0, ticks.length - KEEP)) this.#releases.delete(tick);
    }
    return !known;
  }

  get newest() {
    let found = null;
    for (const release of this.#releases.values()) if (found === null || release.tick > found.tick) found = release;
    return found;
  }

  /** The releases of the last `count` ticks up to a tick, oldest first. */
  last(count, now) {
    return [...this.#releases.values()].filter((r) => r.tick > now - count).sort((a, b) => a.tick - b.tick);
  }

  /** Ticks of a range without a number: it was refused, or readings were missing. */
  gaps(from, to) {
    const found = [];
    for (let tick = from; tick <= to; tick += 1) if (!this.#releases.has(tick)) found.push(tick);
    return found;
  }
}
