"""From a specification to a running stream: model, plan, ledger, publisher, runner, source and sink."""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

from csdp.aging import Adversary
from csdp.chain import CoupledChain, Family, JointChain, Model
from csdp.chain.files import load_model
from csdp.errors import CsdpError, InputError, LedgerError
from csdp.ledger import Ledger
from csdp.panel.names import arrange_names
from csdp.plan import ALGORITHM, Plan
from csdp.publisher import Publisher, Release, Skipped
from csdp.queries import parse_query
from csdp.stream.discretise import Nearest, ToStates
from csdp.stream.mqtt import Broker, MqttSink, MqttSource
from csdp.stream.runner import Alarm, DriftMonitor, Runner
from csdp.stream.sinks import FileSink, LineSink, Sink
from csdp.stream.sources import FileSource, Source, StreamSource
from csdp.stream.spec import Endpoint, ExplicitPlan, PlanTarget, StreamSpec

if TYPE_CHECKING:
    from csdp.estimate.error import Estimate

Result = TypeVar("Result")


@dataclass(frozen=True)
class OpenStream:
    """All that a specification names, open."""

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

    Errors of the files that it names carry its file and line.
    """
    if spec.source.kind == "http":
        raise spec.error("source.kind", "'http' is for `csdp serve`; `csdp stream` reads stdin, a file or mqtt")
    with open_runner(spec, make_plan(spec), stdout=stdout, on_drift=on_drift) as runner:
        yield OpenStream(runner, open_source(spec, stdin), spec.by_wall_clock)


@contextmanager
def open_runner(
    spec: StreamSpec,
    plan: Plan,
    *,
    stdout: BinaryIO | None = None,
    on_drift: Callable[[Alarm], None] | None = None,
    on_outcome: Callable[[Release | Skipped], None] | None = None,
) -> Iterator[Runner]:
    """The runner of a specification with its ledger and sink, without a source."""
    names, states = resolve_sequences(spec, plan)
    with ExitStack() as stack:
        ledger = stack.enter_context(_ledger(spec))
        publisher = make_publisher(spec, plan, ledger)
        sink = _sink(spec, stdout)
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
            drift=_drift(plan) if spec.drift else None,
            on_drift=on_drift,
            on_outcome=on_outcome,
        )


def make_publisher(spec: StreamSpec, plan: Plan, ledger: Ledger) -> Publisher:
    """The gate of a specification, on an open ledger."""
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
    )


def load_chain(spec: StreamSpec) -> Model:
    """The chain that a specification names."""
    if not spec.chain.is_file():
        raise spec.error(
            "chain",
            f"{spec.chain}: no such file. Make one with `csdp fit DATA -o {spec.chain.name}` from public data, or with "
            "`csdp chain new`",
        )
    return _at(spec, "chain", lambda: load_model(spec.chain))


def make_plan(spec: StreamSpec) -> Plan:
    """The plan: from a file, from its numbers, or found for a target. The same specification gives the same plan."""
    if isinstance(spec.plan, ExplicitPlan):
        given, chain = spec.plan, load_chain(spec)
        plan = _at(
            spec,
            "plan",
            lambda: Plan(
                chain,
                parse_query(given.query),
                given.ages,
                given.epsilon_c,
                adversary=cast(Adversary, given.adversary),
                stale_limit=given.stale_limit,
            ),
        )
        _at(spec, "plan", lambda: plan.certified)
        return plan
    if isinstance(spec.plan, PlanTarget):
        target, chain = spec.plan, load_chain(spec)
        return _at(spec, "target", lambda: _kept(chain, target))
    return _from_file(spec)


def _from_file(spec: StreamSpec) -> Plan:
    file = spec.plan
    assert not isinstance(file, ExplicitPlan | PlanTarget)
    try:
        plan = Plan.from_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise spec.error("plan.file", f"{file}: no such file; `csdp plan` writes one with --output") from None
    except InputError as error:
        raise spec.error("plan.file", f"{file}: {error}") from None
    except (ArithmeticError, AttributeError, IndexError, ValueError, OSError) as error:
        raise spec.error("plan.file", f"{file}: not a plan as `csdp plan` writes it ({type(error).__name__})") from None
    chains = plan.chain.members if isinstance(plan.chain, Family) else (plan.chain,)
    if load_chain(spec).digest not in {chain.digest for chain in chains}:
        raise spec.error("plan.file", f"{file}: made for another chain than {spec.chain}")
    return plan


def _kept(chain: Model, target: PlanTarget) -> Plan:
    """The plan that was found for this target before, if it is kept in a file; else it is searched for, and kept."""
    asked = json.dumps({**asdict(target), "file": None, "chain": chain.digest, "algorithm": ALGORITHM}, sort_keys=True)
    question = hashlib.sha256(asked.encode()).hexdigest()
    if target.file is not None and target.file.exists():
        try:
            text = target.file.read_text(encoding="utf-8")
            kept = json.loads(text)["found_for"] == question
        except (KeyError, TypeError, ValueError):
            raise InputError(f"file: {target.file} holds something else than a plan that was found here") from None
        if kept:
            return Plan.from_json(text)
    plan = _found(chain, target)
    if target.file is not None:
        content = json.dumps({**plan.to_dict(), "found_for": question}, indent=1) + "\n"
        target.file.write_text(content, encoding="utf-8")
    return plan


def _found(chain: Model, target: PlanTarget) -> Plan:
    from csdp.planning import find_plan

    found = find_plan(
        chain,
        parse_query(target.query),
        budget=target.budget,
        max_mse=target.max_mse,
        min_age=target.min_age,
        max_age=target.max_age,
        ages="vector" if target.vector else "common",
        releases="continual",
        estimate=cast("Estimate", target.estimate),
        adversary=cast(Adversary, target.adversary),
        event_limit=target.event_limit,
    )
    return Plan(
        found.chain,
        found.query,
        found.ages,
        found.epsilon_c,
        adversary=found.adversary,
        bound=found.bound,
        stale_limit=target.stale_limit,
    )


def resolve_sequences(spec: StreamSpec, plan: Plan) -> tuple[tuple[str, ...], ToStates]:
    """The names of the sequences in messages, as declared, and what turns readings, in the chain's order, to states."""
    chain = plan.model
    own = tuple(chain.names)
    given = own if spec.sequences is None else spec.sequences
    names = _at(spec, "sequences", lambda: arrange_names(given, own))  # in the chain's order
    if spec.discretiser is None:
        return given, Nearest(chain.value_table)
    from csdp.panel import Discretiser

    file = spec.discretiser
    if not file.is_file():
        raise spec.error("discretiser", f"{file}: no such file; Discretiser.save writes one")
    discretiser = _at(spec, "discretiser", lambda: Discretiser.load(file))
    called = names if set(discretiser.names) == set(names) else own
    discretiser = _at(spec, "discretiser", lambda: discretiser.arrange(called))
    if discretiser.state_count > chain.states:
        raise spec.error("discretiser", f"{file}: {discretiser.state_count} states; the chain has {chain.states}")
    return given, discretiser


def _drift(plan: Plan) -> DriftMonitor:
    from csdp.errors import PrivacyLeakWarning
    from csdp.fitting.drift import DriftCheck

    with warnings.catch_warnings():
        # Its warning is about acting on an alarm in public; here it goes to the operator alone.
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        assert isinstance(plan.model, CoupledChain | JointChain)
        return DriftCheck(plan.model)


def _ledger(spec: StreamSpec) -> Ledger:
    try:
        return Ledger.open(spec.ledger)
    except (LedgerError, InputError) as error:
        raise spec.error("ledger", str(error)) from None


def open_source(spec: StreamSpec, stdin: BinaryIO | None = None) -> Source:
    """Where readings come from."""
    place = spec.source
    if place.kind == "stdin":
        return StreamSource(sys.stdin.buffer if stdin is None else stdin)
    if place.kind == "file":
        assert place.path is not None
        path, follow = place.path, place.follow
        return _at(spec, "source.path", lambda: FileSource(path, follow=follow))
    return _at(spec, "source", lambda: MqttSource(_broker(place), topic=place.topic, client_id=place.client_id))


def _sink(spec: StreamSpec, stdout: BinaryIO | None) -> Sink | None:
    place = spec.sink
    if place.kind == "none":
        return None
    if place.kind == "stdout":
        return LineSink(sys.stdout.buffer if stdout is None else stdout)
    if place.kind == "file":
        assert place.path is not None
        path = place.path
        return _at(spec, "sink.path", lambda: FileSink(path))
    return _at(
        spec,
        "sink",
        lambda: MqttSink(_broker(place), topic=place.topic, client_id=place.client_id, retain=place.retain),
    )


def _broker(place: Endpoint) -> Broker:
    assert place.broker is not None
    return place.broker


def _at(spec: StreamSpec, key: str, work: Callable[[], Result]) -> Result:
    """Do something whose error is about a key of the specification."""
    try:
        return work()
    except CsdpError as error:
        raise spec.error(key, str(error)) from None
    except OSError as error:
        raise spec.error(key, f"{error.filename or ''}: {error.strerror}".lstrip(": ")) from None
