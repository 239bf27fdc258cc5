// The service: requests with the key in a header, never in an address; live events over a stream that is read by hand,
// because EventSource cannot send headers.

const BASE = new URL(".", import.meta.url);

export class Problem extends Error {
  constructor(status, { title = "", detail = "" } = {}) {
    super(detail || title || `status ${status}`);
    Object.assign(this, { status, title, detail });
  }
}

async function problemOf(response) {
  try {
    const { title, detail } = await response.json();
    return new Problem(response.status, { title, detail: typeof detail === "string" ? detail : "" });
  } catch {
    return new Problem(response.status);
  }
}

export class Service {
  #key;

  constructor(key) {
    this.#key = key;
  }

  async #open(path, { signal, headers = {}, ...more } = {}) {
    let response;
    try {
      response = await fetch(new URL(path, BASE), {
        headers: { Authorization: `Bearer ${this.#key}`, ...headers },
        signal, cache: "no-store", credentials: "omit", ...more,
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem(0);
    }
    if (!response.ok) throw await problemOf(response);
    return response;
  }

  async get(path, query = {}, { signal } = {}) {
    const asked = new URLSearchParams(query).toString();
    const response = await this.#open(`api/${path}${asked && `?${asked}`}`, { signal });
    try {
      return await response.json();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem(0);
    }
  }

  datasets() {
    return this.get("datasets");
  }

  of(dataset, part, query, options) {
    return this.get(`datasets/${encodeURIComponent(dataset)}/${part}`, query, options);
  }

  /** Change something of a dataset. */
  async put(dataset, part, content, { signal } = {}) {
    const headers = { "Content-Type": "application/json" };
    const body = JSON.stringify(content);
    const path = `api/datasets/${encodeURIComponent(dataset)}/${part}`;
    return (await this.#open(path, { signal, headers, method: "PUT", body })).json();
  }

  /**
   * Events until it is stopped, over lost connections: on.event(kind, data, id), on.state("live" | "waiting").
   * Ends when the signal does, or with a Problem that waiting does not heal.
   */
  async listen(dataset, { signal, after, on }) {
    let last = after;
    let pause = 1000;
    while (!signal.aborted) {
      try {
        const headers = { Accept: "text/event-stream", "Last-Event-ID": String(last) };
        const response = await this.#open(`api/datasets/${encodeURIComponent(dataset)}/events`, { signal, headers });
        on.state("live");
        for await (const event of parsed(response.body)) {
          pause = 1000;
          if (event.id !== null) last = event.id;
          on.event(event.kind, event.data, event.id);
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Problem && [401, 403, 404].includes(error.status)) throw error;
      }
      if (signal.aborted) return;
      on.state("waiting");
      await wait(pause, signal);
      pause = Math.min(2 * pause, 15000);
    }
  }
}

function wait(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

/** Server-sent events of a body, as they come. */
async function* parsed(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const event = eventOf(block);
        if (event !== null) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // the connection may be gone already
  }
}

function eventOf(block) {
  const event = { kind: "message", id: null, data: null };
  const lines = [];
  for (const line of block.split("\n")) {
    const [, name, value] = /^([^:]*):? ?(.*)$/.exec(line);
    if (name === "event") event.kind = value;
    else if (name === "id") event.id = value;
    else if (name === "data") lines.push(value);
  }
  if (lines.length === 0) return null; // a comment that keeps the connection open
  event.data = JSON.parse(lines.join("\n"));
  return event;
}
