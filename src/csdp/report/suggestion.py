"""Useful plans for a file of readings: found by a search, ranked, with the commands that use them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from csdp.aging import Progress
from csdp.bounds.result import with_chance
from csdp.chain.files import save_model
from csdp.errors import CsdpError, InputError, NotUsefulError
from csdp.estimate import Error
from csdp.estimate.result import USEFUL, About, about_words
from csdp.panel import Discretiser, InputSpec, Readings, read_readings
from csdp.plan import Plan
from csdp.planning import EVENT_LIMIT
from csdp.publisher.estimates import StoredEstimate
from csdp.queries import Query, parse_query, with_readings
from csdp.reading_range import ReadingRange
from csdp.report.plan_search import FACTORS, LONGEST_DELAY, CertifiedPlan, PlanSearch

#: Seconds after which the best plans so far are kept, and ticks that are needed at least.
SECONDS, FEWEST_TICKS = 20.0, 50
#: Factors of the budget that are tried where nothing is useful within it.
_MORE = (2.0, 4.0)
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True)
class ProposedPlan:
    """A useful plan: what it is worth, what it leaks, and the commands that use it."""

    certified: CertifiedPlan
    budget: float
    event_limit: float
    options: tuple[str, ...] = ()  #: words that say to every command how the readings are read
    until: str | None = None  #: the end of the public past

    @property
    def plan(self) -> Plan:
        """The plan, ready for a Publisher."""
        return self.certified.plan

    @property
    def error(self) -> Error:
        """The error of its estimates, held out."""
        return self.certified.error

    @property
    def leakage(self) -> float:
        """The certified leakage of the present, of a release at every tick for ever."""
        return self.certified.leakage

    @property
    def discretiser(self) -> Discretiser:
        """What turns readings into states."""
        return self.certified.screened.fitted.discretiser

    @property
    def about(self) -> About:
        """Whether the numbers are about now, or about the time of the readings."""
        return self.certified.screened.about

    @property
    def step(self) -> str:
        """The time between ticks, in words."""
        panel = self.certified.screened.fitted.panel
        if panel.times.dtype.kind != "M":
            return f"{panel.step:g}"
        size, unit = next((size, unit) for size, unit in _UNITS if panel.step % size == 0)
        return f"{panel.step // size} {unit}"

    @property
    def sure(self) -> str:
        """What the certificate is for."""
        chain, others = self.certified.chain, self.certified.ensemble
        if not others:
            return "the fitted chain alone"
        return f"{others + 1} plausible chains" if chain.fitted.confidence is None else "all within limits"

    def to_dict(self, data: str, folder: str) -> dict[str, Any]:
        """As plain data, for JSON."""
        fitted, plan = self.certified.screened.fitted, self.plan
        return {
            "query": self.certified.screened.text,
            "about": self.about,
            "usefulness": self.error.known_usefulness,
            "leakage": self.leakage,
            "bound": self.certified.bound,
            "age": plan.max_age,
            "event_level": plan.epsilon_c,
            "step": fitted.panel.step,
            "states": fitted.layout.states,
            "chain": fitted.kind.words,
            "kind": fitted.kind.name,
            "direction": fitted.kind.direction,
            "certified_for": self.sure,
            "model": plan.verdict.to_dict(),
            "plan_digest": plan.digest,
            "commands": list(self.commands(data, folder)),
        }

    @property
    def _reading_options(self) -> list[str]:
        """Options of readings: those that were given, and those that put ticks together."""
        fitted = self.certified.screened.fitted
        longer = [] if fitted.layout.factor == 1 else ["--step", str(fitted.panel.step), "--resample", "mean"]
        return [*self.options, *longer]

    @property
    def _past_options(self) -> list[str]:
        return [] if self.until is None else ["--until", self.until]

    def commands(self, data: str, folder: str) -> tuple[str, ...]:
        """The commands that make and use it from the readings alone: fit, release, report."""
        fitted, plan = self.certified.screened.fitted, self.plan
        chain, states = (str(Path(folder) / name) for name in ("chain.json", "discretiser.json"))
        options = {
            "states": fitted.layout.states,
            "strategy": fitted.layout.strategy,
            **fitted.kind.settings,
            "ensemble": self.certified.ensemble,
        }
        fit = ["csdp", "fit", data, *self._reading_options, *self._past_options]
        fit += [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        fit += ["--public", "-o", chain, "--save-discretiser", states]
        release = ["csdp", "release", data, *self._reading_options, *self._past_options]
        release += ["--chain", chain, "--discretiser", states]
        release += ["--query", self.certified.screened.text, *(["--of", "states"] if plan.query.of_states else [])]
        release += ["--age", str(plan.max_age), "--epsilon-c", repr(plan.epsilon_c), "--about", self.about]
        release += ["--stale-limit", str(plan.stale_limit)] if plan.stale_limit else []
        release += ["--past", data] if self.certified.estimator is not None else []
        return (shlex.join(fit), shlex.join([*release, *self._place()]), self._report(data, states))

    def next_commands(self, data: str, folder: str) -> tuple[str, ...]:
        """The commands that use the files of a folder: release, report."""
        states = f"{folder}/discretiser.json"
        release = ["csdp", "release", data, *self._reading_options, *self._past_options]
        release += ["--discretiser", states, "--plan", f"{folder}/plan.json", *self._place()]
        return (shlex.join(release), self._report(data, states))

    def _place(self) -> list[str]:
        limits = ["--budget", f"{self.budget:g}", "--event-limit", f"{self.event_limit:g}"]
        place = ["--dataset", "NAME", "--ledger", "ledger.db"]
        unchecked = [] if self.plan.verdict.reliable else ["--model-unchecked"]
        return [*limits, *place, *unchecked, "--on-refusal", "skip", "-o", "released.csv"]

    def _report(self, data: str, states: str) -> str:
        words = ["csdp", "report", "ledger.db", "--dataset", "NAME", "--data", data, *self._reading_options]
        return shlex.join([*words, "--discretiser", states, "-o", "report"])

    def save(self, folder: Path) -> list[Path]:
        """Write discretiser, chain and plan."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / name for name in ("discretiser.json", "chain.json", "plan.json")]
        self.discretiser.save(paths[0])
        save_model(self.certified.chain, paths[1])
        content = {**self.plan.to_dict(), **StoredEstimate(self.about, self.certified.estimator).to_dict()}
        paths[2].write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        return paths


@dataclass(frozen=True)
class Suggestion:
    """Useful plans, the best first, and the reason for each choice of the best.

    `tried`: settings that were looked at. `interrupted`: whether the search was ended by hand.
    """

    plans: tuple[ProposedPlan, ...]
    budget: float
    tried: int
    interrupted: bool

    @property
    def best(self) -> ProposedPlan:
        """The plan that is proposed first."""
        return self.plans[0]

    @property
    def reasons(self) -> tuple[tuple[str, str, str], ...]:
        """Of the best plan: what, the choice, why."""
        best, fitted = self.best, self.best.certified.screened.fitted
        kind, plan = fitted.kind, self.best.plan
        noise = f"epsilon_c {plan.epsilon_c:.3g}: leaks at most {with_chance(best.leakage)} without end"
        estimator = best.certified.estimator
        about = about_words(best.about, plan.max_age)
        return (
            (
                "states",
                f"{fitted.layout.states} ({fitted.layout.strategy}), step {best.step}",
                "as useful as any tried",
            ),
            (
                "chain",
                kind.words,
                f"gains {kind.gain:.3f} nats a tick on readings set aside (standard error {kind.error:.3f})",
            ),
            ("certified for", best.sure, "what the readings leave possible; more with csdp fit --ensemble 20"),
            ("model", plan.verdict.status, plan.verdict.words),
            ("query", best.certified.screened.text, "the most useful of those tried"),
            ("budget", f"{self.budget:g} for the present", "the odds of any present state change by at most e^budget"),
            ("plan", f"{about}, age {plan.max_age}, {noise}", f"it {best.error.in_words}"),
            ("event limit", f"{plan.epsilon_c:.3g}", "plain differential privacy of one reading, under any model"),
            ("missing readings", f"at most {plan.stale_limit} steps older", "so that most ticks can be released"),
            (
                "estimate",
                "by the chain" if estimator is None else f"{estimator.kind}, learned on these readings",
                "too few complete ticks to learn from" if estimator is None else estimator.in_words,
            ),
        )

    def save(self, folder: Path, *, data: str) -> list[Path]:
        """Write every plan to a folder of its own, 1 the best, and the commands to run next."""
        paths = [path for n, plan in enumerate(self.plans, 1) for path in plan.save(folder / str(n))]
        paths.append(folder / "next.txt")
        commands = self.best.next_commands(data, f"{folder}/1")
        paths[-1].write_text("\n".join(commands) + "\n", encoding="utf-8")
        return paths


def suggest(
    data: Any,
    *,
    budget: float = 1.0,
    event_limit: float = EVENT_LIMIT,
    query: str | None = None,
    about: About | None = None,
    of: ReadingRange | None = None,
    fixed_step: bool = False,
    seconds: float = SECONDS,
    public: bool = False,
    until: str | int | None = None,
    options: Sequence[str] = (),
    progress: Progress | None = None,
) -> Suggestion:
    """Search for useful plans for readings: step, states, kind of chain, query, age and noise within a budget.

    Kinds of chain (independent, by the clock, a hidden environment, coupled; forward, backward) are chosen by how well
    they explain readings that were set aside. Usefulness is measured on the readings; leakage is certified for a
    release at every tick, for ever. NotUsefulError, with what would help, where no plan is useful.

    The proposal is derived from the readings, so they must be public: all of them, or those before `until`.

    Args:
        data: a file, a frame, an array, or `Readings`.
        budget: largest leakage of the present.
        event_limit: largest epsilon_c.
        query: the text of the query; by default mean, max, and with several states a count and a histogram.
        about: "now" or "then"; by default both.
        of: the range of the readings, if it is known without them: means of readings are then proposed.
        fixed_step: keep the step of the readings; by default longer ones are tried.
        seconds: after about which the best so far is kept; an interrupt (Ctrl-C) keeps it as well.
        public: declares that the readings are public, which they must be.
        until: use only ticks that are over at this time, the public past; the commands release what follows.
        options: of the command line, with which the readings are read; the commands repeat them.
        progress: called with (what is tried, done, total).

    >>> from csdp import CoupledChain
    >>> states = CoupledChain([[0.8, 0.2], [0.2, 0.8]], [[0.7, 0.3], [0.3, 0.7]]).simulate(600, seed=1)
    >>> proposal = suggest(states.astype(float), query="mean", public=True, fixed_step=True)
    >>> proposal.best.leakage <= 1.0, proposal.best.error.usefulness > 0.05, proposal.best.plan.model.sequences
    (True, True, 2)
    """
    if not public:
        raise InputError(
            "data: not declared public, and a proposal made from private readings would reveal them without limit. "
            "Declare what is public (public=True), or an older part of them (with until=), and release what follows"
        )
    for name, number in (("budget", budget), ("event_limit", event_limit), ("seconds", seconds)):
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < float("inf"):
            raise InputError(f"{name}: {number!r} given; a positive number expected")
    if about not in {None, "now", "then"}:
        raise InputError(f"about: {about!r} given; 'now' or 'then', or leave it out for both")
    readings = data if isinstance(data, Readings) else read_readings(data)
    zone = data.timezone if isinstance(data, InputSpec) else None

    def take_past(every: Readings) -> Readings:
        return every if until is None else every.split(until, timezone=zone)[0]

    ticks = len(take_past(readings))
    if ticks < FEWEST_TICKS:
        raise InputError(f"data: {ticks} ticks; at least {FEWEST_TICKS} are needed to propose anything")

    def report(what: str, share: float) -> None:
        if progress is not None:
            progress(what, min(100, round(100 * share)), 100)

    search = PlanSearch(
        readings,
        budget=float(budget),
        event_limit=float(event_limit),
        queries=partial(_queries, query, of, len(readings.names)),
        abouts=("now", "then") if about is None else (about,),
        factors=FACTORS[:1] if fixed_step else FACTORS,
        seconds=float(seconds),
        report=report,
        take_past=take_past,
    )
    search.run()
    if not search.certified:
        raise _not_useful(search)
    ends = None if until is None else str(until)
    plans = tuple(
        ProposedPlan(one, float(budget), float(event_limit), tuple(options), ends) for one in search.certified
    )
    return Suggestion(plans, float(budget), search.tried, search.interrupted)


def _queries(given: str | None, of: ReadingRange | None, sequences: int, states: int) -> Sequence[tuple[str, Query]]:
    """The queries to try for a number of states; of readings first, where their range is known."""
    texts = [given] if given is not None else ["mean", *(["max"] if sequences > 1 else [])]
    if given is None and states > 2:
        texts += [f"count:{states - 1}", "histogram"]
    made: list[tuple[str, Query]] = []
    if of is not None:
        try:
            ranged = with_readings(texts[0], of)
            made.append((getattr(ranged, "text", texts[0]), ranged))
        except InputError:
            if given is not None:
                raise
    return [*made, *((text, parse_query(text)) for text in texts)]


def _not_useful(search: PlanSearch) -> NotUsefulError:
    """The error that says what would help, computed where that is quick."""
    best = min(search.screened, key=lambda one: one.order, default=None)
    helps: list[str] = []
    if best is not None and best.about == "now":
        for factor in _MORE:
            budget = search.budget * factor
            try:
                wider = search.screen_now(best.fitted, best.text, best.query, {}, budget=budget)
            except CsdpError:
                break
            if wider is not None and wider.usefulness >= USEFUL:
                helps.append(f"a budget of {budget:g}, with which about {100 * wider.usefulness:.0f} % are removed")
                break
    if search.event_limit < EVENT_LIMIT:
        helps.append("a larger --event-limit")
    if "then" not in search.abouts:
        helps.append("numbers about the time of the readings (--about then)")
    helps += ["more sequences in one answer", "longer readings", "a longer --step with --resample mean"]
    usefulness = 0.0 if best is None else best.usefulness
    outcome = (
        f"the best removes {100 * max(usefulness, 0.0):.2g} % of the squared error of guessing the usual value"
        if best is not None
        else f"none keeps the budget within {LONGEST_DELAY} ticks of delay"
    )
    return NotUsefulError(
        f"no useful plan with a budget of {search.budget:g}: of {search.tried} settings {outcome}, less than "
        f"{100 * USEFUL:g} %. What would help: {'; '.join(helps)}",
        usefulness=usefulness,
        helps=tuple(helps),
    )
