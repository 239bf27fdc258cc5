// The page: key, dataset, views.

import { Problem, Service } from "./api.js";
import { BudgetChoice } from "./budget.js";
import { byId, el, say, show } from "./dom.js";
import { LiveView } from "./live.js";
import { PlanningView } from "./planning.js";
import { trouble } from "./words.js";

const KEY = "csdp-key"; // in sessionStorage: gone with the tab
const DATASET = "csdp-dataset";
const VIEWS = ["live", "planning", "promise"];

const SIGNED = "#key="; // an address that signs in: a browser sends no part of it that follows "#" to any server

const live = new LiveView();
const budget = new BudgetChoice(reread);
const planning = new PlanningView();
let service = null;
let datasets = [];
let current = null;
let running = null;

function view() {
  const asked = location.hash.slice(1);
  return VIEWS.includes(asked) ? asked : "live";
}

function navigate({ focus = false } = {}) {
  const chosen = view();
  for (const name of VIEWS) {
    show(name, current !== null && name === chosen);
    if (name === chosen) byId(`to-${name}`).setAttribute("aria-current", "page");
    else byId(`to-${name}`).removeAttribute("aria-current");
  }
  if (current === null) return;
  document.title = `${byId(`to-${chosen}`).textContent} – ${current.name} – csdp`;
  if (chosen === "planning") planning.shown();
  if (focus) byId(`${chosen}-title`).focus();
}

function signedIn(yes) {
  for (const id of ["choices", "views"]) show(id, yes);
  show("sign-in", !yes);
}

function askForKey(words = "") {
  running?.abort();
  complain("");
  sessionStorage.removeItem(KEY);
  [service, current] = [null, null];
  signedIn(false);
  navigate();
  document.title = "Published numbers – csdp";
  say("key-error", words);
  byId("key").setAttribute("aria-invalid", words === "" ? "false" : "true");
  byId("key").focus();
}

function failed(error) {
  if (error.name === "AbortError") return;
  if (error instanceof Problem && [401, 403].includes(error.status)) {
    askForKey(trouble(error));
    return;
  }
  if (!(error instanceof Problem)) throw error;
  complain(trouble(error));
}

function complain(words) {
  show("message", words !== "");
  say("message", words);
}

function connection(state) {
  byId("connection").className = `connection ${state}`;
  say("connection-text", { live: "Live", waiting: "Reconnecting …", connecting: "Connecting …" }[state]);
  if (state === "live") complain("");
}

async function signIn(key, { focus = false } = {}) {
  const asked = new Service(key);
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  try {
    datasets = await patiently(() => asked.datasets(), signal);
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof Problem)) throw error;
    askForKey(trouble(error));
    return;
  }
  if (signal.aborted) return;
  service = asked;
  sessionStorage.setItem(KEY, key);
  say("key-error", "");
  complain("");
  if (datasets.length === 0) {
    askForKey("This key may read no dataset. Ask the person who runs the service for access.");
    return;
  }
  byId("dataset").replaceChildren(...datasets.map(({ name }) => el("option", { value: name }, name)));
  const before = sessionStorage.getItem(DATASET);
  byId("dataset").value = datasets.some(({ name }) => name === before) ? before : datasets[0].name;
  signedIn(true);
  await open({ focus });
}

/** The datasets again, after one of them was given another plan. */
async function reread() {
  const { name } = current;
  datasets = await service.datasets();
  byId("dataset").value = name;
  open();
}

async function open({ focus = false } = {}) {
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  current = datasets.find(({ name }) => name === byId("dataset").value);
  sessionStorage.setItem(DATASET, current.name);
  connection("connecting");
  planning.open(current);
  budget.open(service, current, signal);
  navigate({ focus });
  try {
    const newest = await patiently(() => live.open(service, current, signal), signal);
    const on = {
      // After a reset the service has an older ledger than this page has shown: begin again.
      event: (kind, data) => (kind === "reset" ? open() : live.event(kind, data)),
      state: connection,
    };
    await service.listen(current.name, { signal, after: newest, on });
  } catch (error) {
    if (!signal.aborted) failed(error);
  }
}

/** Ask; a service that is out of reach is asked again until it answers. */
async function patiently(ask, signal) {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (signal.aborted || !(error instanceof Problem) || ![0, 502, 503, 504].includes(error.status)) throw error;
      connection("waiting");
      complain(trouble(error));
      await new Promise((resolve) => { setTimeout(resolve, 2000); });
    }
  }
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = byId("key").value.trim();
  byId("key").value = "";
  if (key === "") askForKey("Enter an access key.");
  else signIn(key, { focus: true });
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash names the view
  byId("main").focus();
});
byId("leave").addEventListener("click", () => askForKey());
byId("dataset").addEventListener("change", () => open());
window.addEventListener("hashchange", () => navigate({ focus: true }));

/** The key of an address that signs in; it is removed from the address, and from the history of this tab. */
function keyOfAddress() {
  if (!location.hash.startsWith(SIGNED)) return null;
  const key = decodeURIComponent(location.hash.slice(SIGNED.length));
  history.replaceState(null, "", "#live");
  return key;
}

const kept = keyOfAddress() ?? sessionStorage.getItem(KEY);
if (kept === null) signedIn(false);
else signIn(kept);
