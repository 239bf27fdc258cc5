"""From a specification to a running stream: model, plan, ledger, publisher, runner, source and sink."""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from csdp.bounds.adversary import Adversary
from csdp.chain import CoupledChain, JointChain, Model, certified_model
from csdp.chain.files import load_model
from csdp.errors import CsdpError, InputError, LedgerError, NotUsefulError
from csdp.estimate import Estimator, LearnedEstimator
from csdp.ledger import Ledger
from csdp.panel.readings import arrange_names
from csdp.plan import ALGORITHM, Plan
from csdp.planning.plan_file import PlanFile
from csdp.publisher import Publisher, Release, Skipped, plan_estimator
from csdp.publisher.estimates import check_estimator
from csdp.publisher.sources import check_states_source
from csdp.query import parse_query
from csdp.stream.messages import ToStates
from csdp.stream.mqtt import MqttSink, MqttSource
from csdp.stream.runner import Runner
from csdp.stream.sinks import FileSink, LineSink, Sink
from csdp.stream.sources import FileSource, Source, StreamSource, TableSource
from csdp.stream.spec import ExplicitPlan, PlanTarget, StreamSpec
from csdp.stream.ticks import Alarm, DriftMonitor

if TYPE_CHECKING:
    from csdp.estimate.result import About, Estimate
    from csdp.planning import Frontier


@dataclass(frozen=True)
class OpenStream:
    """A runner and its source, open."""

    runner: Runner
    source: Source
    by_wall_clock: bool


@contextmanager
def open_stream(
    spec: StreamSpec,
    *,
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    on_drift: Callable[[Alarm], None] | None = None,
) -> Iterator[OpenStream]:
    """Open what a specification names; everything is closed at the end, also after an error.

    Args:
        spec: the specification; errors of the files that it names carry its file and line.
        stdin: read in the place of standard input.
        stdout: written in the place of standard output.
        on_drift: called when the drift check begins to give an alarm.
    """
    if spec.source.kind == "http":
        raise spec.error(
            "source.kind", "'http' is for `csdp serve`; `csdp stream` reads stdin, a file, a table or mqtt"
        )
    plan = make_plan(spec)
    require_useful(spec, plan)
    with open_runner(spec, plan, stdout=stdout, on_drift=on_drift) as runner:
        yield OpenStream(runner, open_source(spec, stdin), spec.by_wall_clock)


@contextmanager
def open_runner(
    spec: StreamSpec,
    plan: Plan,
    *,
    stdout: BinaryIO | None = None,
    on_drift: Callable[[Alarm], None] | None = None,
    on_outcome: Callable[[Release | Skipped], None] | None = None,
    ledger: Ledger | None = None,
) -> Iterator[Runner]:
    """Open the runner of a specification with its ledger and sink, without a source.

    Args:
        spec: the specification.
        plan: its plan, see `make_plan`.
        stdout: written in the place of standard output.
        on_drift: called when the drift check begins to give an alarm.
        on_outcome: called with every release and every tick without output.
        ledger: open, and holding the dataset; by default that of the specification is opened and held.
    """
    names, states = resolve_sequences(spec, plan)
    with ExitStack() as stack:
        if ledger is None:
            ledger = stack.enter_context(_open_ledger(spec))
            ledger.hold(spec.dataset)
        publisher = make_publisher(spec, plan, ledger)
        # Code is compiled and the first states are computed here, not while the writer of the first reading waits.
        publisher.accountant.peak(publisher.accountant.history(2))
        sink = _open_sink(spec, stdout)
        if sink is not None:
            stack.callback(sink.close)
        yield Runner(
            publisher,
            ledger=ledger,
            clock=spec.clock,
            names=names,
            states=states,
            sink=sink,
            state_file=spec.state_file,
            missing_up_to=spec.missing_up_to,
            drift=_make_drift_check(plan) if spec.drift else None,
            on_drift=on_drift,
            on_outcome=on_outcome,
        )


def make_publisher(spec: StreamSpec, plan: Plan, ledger: Ledger) -> Publisher:
    """The publisher of a specification, on an open ledger."""
    return Publisher(
        plan,
        dataset=spec.dataset,
        ledger=ledger,
        budget=spec.limits["budget"],
        event_limit=spec.limits["event_limit"],
        lifetime_limit=spec.limits["lifetime_limit"],
        time_step=spec.clock.step,
        time_origin=spec.clock.origin,
        times=spec.clock.times,
        on_refusal="skip",
        model_unchecked=spec.model_unchecked,
        estimator=make_estimator(spec, plan),
    )


def make_estimator(spec: StreamSpec, plan: Plan) -> Estimator | None:
    """The estimator of a specification: in its file, in the file of the plan, or by the model."""
    about, file = spec.estimate.about, spec.estimate.file
    if file is not None:
        with _errors_at(spec, "estimate.file"):
            learned = LearnedEstimator.load(file)
            check_estimator(plan, learned)
        if about not in {None, learned.about}:
            raise spec.error("estimate.about", f"{about!r} given, but the estimator is about {learned.about!r}")
        return learned
    if isinstance(spec.plan, Path):
        with _errors_at(spec, "plan.file"):
            stored = PlanFile.load(spec.plan)
            kept = about in {None, stored.about if stored.learned is None else stored.learned.about}
            return stored.estimator if kept else plan_estimator(plan, about=about or "now")
    return plan_estimator(plan, about=about or "now")


def require_useful(spec: StreamSpec, plan: Plan) -> None:
    """Raise NotUsefulError if what would be published removes less than 5 % of the error of guessing the usual value.

    `csdp release` has the same rule. A specification with `anyway = true` passes, and so does an unknown error.
    """
    from csdp.planning import check_useful

    estimator = None if spec.anyway else make_estimator(spec, plan)
    if estimator is None:
        return
    try:
        check_useful(plan, estimator.expected(plan.noise_variance))
    except NotUsefulError as stop:
        words = str(stop).replace("--about then", '[estimate] about = "then"')
        message = f"{spec.document.path}: {words}; or anyway = true"
        raise NotUsefulError(message, usefulness=stop.usefulness, helps=stop.helps) from None


def read_frontier(spec: StreamSpec) -> Frontier | None:
    """The frontier that is stored with the plan of a specification; None if there is none."""
    file = spec.plan.file if isinstance(spec.plan, PlanTarget) else spec.plan
    if not isinstance(file, Path):
        return None
    with _errors_at(spec, "target.file" if isinstance(spec.plan, PlanTarget) else "plan.file"):
        return PlanFile.load(file).frontier


def load_chain(spec: StreamSpec) -> Model:
    """Load the chain of a specification."""
    if not spec.chain.is_file():
        raise spec.error(
            "chain",
            f"{spec.chain}: no such file. Make one with `csdp fit DATA -o {spec.chain.name}` from public data, or with "
            "`csdp chain new`",
        )
    with _errors_at(spec, "chain"):
        return load_model(spec.chain)


def make_plan(spec: StreamSpec) -> Plan:
    """The plan: from a file, from its numbers, or searched for. The same specification gives the same plan.

    A plan whose model the data reject, or did not test, is refused unless the specification says `model_unchecked`.
    """
    plan = _make_plan(spec)
    if not plan.verdict.reliable and not spec.model_unchecked:
        raise spec.error(
            "target" if isinstance(spec.plan, PlanTarget) else "plan",
            f"{plan.verdict.words} The leakage of the present may be larger than certified. Use a model that its "
            "public past accepts, or publish under the event level alone, which holds under any model: "
            "model_unchecked = true at the top of this file",
        )
    return plan


def _make_plan(spec: StreamSpec) -> Plan:
    if isinstance(spec.plan, ExplicitPlan):
        explicit, chain = spec.plan, load_chain(spec)
        with _errors_at(spec, "plan"):
            plan = Plan(
                chain,
                parse_query(explicit.query),
                explicit.ages,
                explicit.epsilon_c,
                adversary=cast(Adversary, explicit.adversary),
                protect=explicit.protect,
                stale_limit=explicit.stale_limit,
            )
            plan.certified  # noqa: B018 - computed here, so that an error names the line
        return plan
    if isinstance(spec.plan, PlanTarget):
        chain = load_chain(spec)
        with _errors_at(spec, "target"):
            return _load_or_find_plan(chain, spec.plan)
    return _load_plan(spec, spec.plan)


def _load_plan(spec: StreamSpec, file: Path) -> Plan:
    try:
        plan = Plan.from_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise spec.error("plan.file", f"{file}: no such file; `csdp plan` writes one with --output") from None
    except InputError as error:
        raise spec.error("plan.file", f"{file}: {error}") from None
    except (ArithmeticError, AttributeError, IndexError, ValueError, OSError) as error:
        raise spec.error("plan.file", f"{file}: not a plan as `csdp plan` writes it ({type(error).__name__})") from None
    chain = load_chain(spec)  # of a fit with its family, the plan has the family alone
    if not {chain.digest, certified_model(chain).digest} & {
        plan.chain.digest,
        *(one.digest for one in plan.chain.members),
    }:
        raise spec.error("plan.file", f"{file}: made for another chain than {spec.chain}")
    return plan


def _load_or_find_plan(chain: Model, target: PlanTarget) -> Plan:
    """The plan in the file of a target, if it was found for this target; else search for it, and write the file."""
    from csdp.planning import plan_frontier

    problem = {**asdict(target), "file": None, "chain": chain.digest}
    if target.protect is None:
        del problem["protect"]  # files of versions without it stay those of this target
    # A plan that an earlier version found is kept, and certified anew or refused: the dataset is published under it.
    versions = [{**problem, "algorithm": version} for version in range(1, ALGORITHM + 1)]
    digests = [hashlib.sha256(json.dumps(each, sort_keys=True).encode()).hexdigest() for each in versions]
    if target.file is not None and target.file.exists():
        try:
            text = target.file.read_text(encoding="utf-8")
            is_same = json.loads(text)["found_for"] in digests
        except (KeyError, TypeError, ValueError):
            raise InputError(f"file: {target.file} holds something else than a plan that was found here") from None
        if is_same:
            return Plan.from_json(text)
    plan = _find_plan(chain, target)
    if target.file is not None:
        line = plan_frontier(plan, estimate=cast("Estimate", target.estimate), about=_about(target))
        further = {"found_for": digests[-1]} | ({} if line is None else {"frontier": line.to_dict()})
        target.file.write_text(json.dumps({**plan.to_dict(), **further}, indent=1) + "\n", encoding="utf-8")
    return plan


def _about(target: PlanTarget) -> About:
    return "then" if target.about == "then" else "now"


def _find_plan(chain: Model, target: PlanTarget) -> Plan:
    from csdp.planning import find_plan

    plan = find_plan(
        chain,
        parse_query(target.query),
        budget=target.budget,
        max_mse=target.max_mse,
        min_age=target.min_age,
        max_age=target.max_age,
        ages="vector" if target.vector else "common",
        releases="continual",
        estimate=cast("Estimate", target.estimate),
        about=_about(target),
        adversary=cast(Adversary, target.adversary),
        protect=target.protect,
        event_limit=target.event_limit,
    ).plan
    return Plan(
        plan.chain,
        plan.query,
        plan.ages,
        plan.epsilon_c,
        adversary=plan.adversary,
        protect=plan.protect,
        bound=plan.bound,
        stale_limit=target.stale_limit,
    )


def resolve_sequences(spec: StreamSpec, plan: Plan) -> tuple[tuple[str, ...], ToStates | None]:
    """The names of the sequences in messages, as declared, and the discretiser, if any, in the chain's order."""
    chain = plan.model
    own = tuple(chain.names)
    declared = own if spec.sequences is None else spec.sequences
    with _errors_at(spec, "sequences"):
        names = arrange_names(declared, own)  # in the chain's order
    if spec.discretiser is None:
        return declared, None
    from csdp.panel import Discretiser

    file = spec.discretiser
    if not file.is_file():
        raise spec.error("discretiser", f"{file}: no such file; `csdp fit` writes one with the chain")
    with _errors_at(spec, "discretiser"):
        discretiser = Discretiser.load(file)
        discretiser = discretiser.arrange(names if set(discretiser.names) == set(names) else own)
        check_states_source(discretiser.source, plan)
    if discretiser.state_count > chain.states:
        raise spec.error("discretiser", f"{file}: {discretiser.state_count} states; the chain has {chain.states}")
    return declared, discretiser


def _make_drift_check(plan: Plan) -> DriftMonitor:
    from csdp.errors import PrivacyLeakWarning
    from csdp.fitting.drift import DriftCheck

    with warnings.catch_warnings():
        # Its warning is about acting on an alarm in public; here it goes to the operator alone.
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        plan.model.require_one_kernel()
        assert isinstance(plan.model, CoupledChain | JointChain)
        return DriftCheck(plan.model)


def _open_ledger(spec: StreamSpec) -> Ledger:
    try:
        return Ledger.open(spec.ledger)
    except (LedgerError, InputError) as error:
        raise spec.error("ledger", str(error)) from None


def open_source(spec: StreamSpec, stdin: BinaryIO | None = None) -> Source:
    """The source of a specification."""
    place = spec.source
    if place.kind == "stdin":
        return StreamSource(sys.stdin.buffer if stdin is None else stdin)
    if place.kind == "input":
        assert spec.input is not None
        with _errors_at(spec, "input"):
            return TableSource(spec.input)
    with _errors_at(spec, "source.path" if place.kind == "file" else "source"):
        if place.kind == "file":
            assert place.path is not None
            return FileSource(place.path, follow=place.follow)
        assert place.broker is not None
        return MqttSource(place.broker, topic=place.topic, client_id=place.client_id)


def _open_sink(spec: StreamSpec, stdout: BinaryIO | None) -> Sink | None:
    place = spec.sink
    if place.kind == "none":
        return None
    if place.kind == "stdout":
        return LineSink(sys.stdout.buffer if stdout is None else stdout)
    with _errors_at(spec, "sink.path" if place.kind == "file" else "sink"):
        if place.kind == "file":
            assert place.path is not None
            return FileSink(place.path)
        assert place.broker is not None
        return MqttSink(place.broker, topic=place.topic, client_id=place.client_id, retain=place.retain)


@contextmanager
def _errors_at(spec: StreamSpec, key: str) -> Iterator[None]:
    """Add the file and line of a key of the specification to errors."""
    try:
        yield
    except CsdpError as error:
        raise spec.error(key, str(error)) from None
    except OSError as error:
        raise spec.error(key, f"{error.filename or ''}: {error.strerror}".lstrip(": ")) from None
