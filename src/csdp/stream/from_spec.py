"""From a specification to a running stream: plan file, ledger, publisher, runner, source and sink."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from csdp.chain import CoupledChain, JointChain
from csdp.errors import CsdpError, InputError, LedgerError, NotUsefulError, PrivacyLeakWarning
from csdp.ledger import Ledger
from csdp.panel.panel import arrange_names
from csdp.plan import Plan
from csdp.planning.plan_file import PlanFile
from csdp.publisher import Publisher, Release, Skipped
from csdp.stream.messages import find_states
from csdp.stream.mqtt import MqttSink, MqttSource
from csdp.stream.runner import Runner
from csdp.stream.sinks import FileSink, LineSink, Sink
from csdp.stream.sources import FileSource, Source, StreamSource, TableSource
from csdp.stream.spec import FileSinkPlace, FileSourcePlace, StdinPlace, StdoutPlace, StreamSpec

if TYPE_CHECKING:
    from csdp.fitting.drift import DriftCheck


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
) -> Iterator[OpenStream]:
    """Open what a specification names; everything is closed at the end, also after an error.

    Args:
        spec: the specification; errors of the files that it names carry its file and line.
        stdin: read instead of standard input.
        stdout: written instead of standard output.
    """
    if spec.source.kind == "http":
        raise spec.error(
            "source.kind", "'http' is for `csdp serve`; `csdp stream` reads stdin, a file, a table or mqtt"
        )
    plan = load_plan(spec)
    with open_runner(spec, plan, stdout=stdout) as runner:
        yield OpenStream(runner, open_source(spec, plan, stdin), spec.by_wall_clock)


@contextmanager
def open_runner(
    spec: StreamSpec,
    plan: PlanFile,
    *,
    stdout: BinaryIO | None = None,
    on_outcome: Callable[[Release | Skipped], None] | None = None,
    ledger: Ledger | None = None,
) -> Iterator[Runner]:
    """Open the runner of a specification with its ledger and sink, without a source.

    Args:
        spec: the specification.
        plan: its plan, see `load_plan`.
        stdout: written instead of standard output.
        on_outcome: called with every release and every tick without output.
        ledger: open, and holding the dataset; by default that of the specification is opened and held.
    """
    names = resolve_names(spec, plan)
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
            discretiser=plan.discretiser,
            sink=sink,
            state_file=spec.state_file,
            missing_up_to=spec.missing_up_to,
            drift=_make_drift_check(plan.plan) if spec.drift else None,
            on_outcome=on_outcome,
        )


def load_plan(spec: StreamSpec) -> PlanFile:
    """The content of the plan file of a specification, if it may be published.

    A plan whose model the data reject, or did not test, is refused unless the specification says `model_unchecked`.
    NotUsefulError if releases remove less than 5 % of the error of guessing the usual value, unless it says `anyway`.
    """
    from csdp.planning import check_useful

    with _errors_at(spec, "plan"):
        stored = PlanFile.load(spec.plan)
    plan, estimator = stored.plan, stored.estimator
    if not plan.verdict.reliable and not spec.model_unchecked:
        raise spec.error(
            "plan",
            f"{plan.verdict.words} The leakage of the present may be larger than certified. Use a model that its "
            "public past accepts, or publish under the event level alone, which holds under any model: "
            "model_unchecked = true at the top of this file",
        )
    if estimator is not None and not spec.anyway:
        try:
            check_useful(plan, estimator.expected(plan.noise_variance))
        except NotUsefulError as stop:
            message = f"{spec.path}: {stop}; or anyway = true"
            raise NotUsefulError(message, usefulness=stop.usefulness, helps=stop.helps) from None
    return stored


def make_publisher(spec: StreamSpec, plan: PlanFile, ledger: Ledger) -> Publisher:
    """The publisher of a specification, on an open ledger."""
    return Publisher(
        plan.plan,
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
        estimator=plan.estimator,
    )


def resolve_names(spec: StreamSpec, plan: PlanFile) -> tuple[str, ...]:
    """The names of the sequences in messages, as declared: the order of a snapshot that is a list."""
    own = tuple(plan.plan.model.names)
    declared = own if spec.sequences is None else spec.sequences
    with _errors_at(spec, "sequences"):
        names = arrange_names(declared, own)
    with _errors_at(spec, "plan"):
        find_states(plan.discretiser, names, plan.plan)
    return declared


def _make_drift_check(plan: Plan) -> DriftCheck:
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


def open_source(spec: StreamSpec, plan: PlanFile, stdin: BinaryIO | None = None) -> Source:
    """The source of a specification; a table is replayed from the end of the plan's public past on."""
    place = spec.source
    if isinstance(place, StdinPlace):
        if place.kind != "input":
            return StreamSource(sys.stdin.buffer if stdin is None else stdin)
        assert spec.table is not None
        with _errors_at(spec, "input"):
            return TableSource(spec.table, after=plan.until)
    if isinstance(place, FileSourcePlace):
        with _errors_at(spec, "source.path"):
            return FileSource(place.path, follow=place.follow)
    with _errors_at(spec, "source"):
        return MqttSource(place.broker, topic=place.topic, client_id=place.client_id or f"csdp-{spec.dataset}")


def _open_sink(spec: StreamSpec, stdout: BinaryIO | None) -> Sink | None:
    place = spec.sink
    if isinstance(place, StdoutPlace):
        return None if place.kind == "none" else LineSink(sys.stdout.buffer if stdout is None else stdout)
    if isinstance(place, FileSinkPlace):
        with _errors_at(spec, "sink.path"):
            return FileSink(place.path)
    with _errors_at(spec, "sink"):
        client_id = place.client_id or f"csdp-{spec.dataset}-out"
        return MqttSink(place.broker, topic=place.topic, client_id=client_id, retain=place.retain)


@contextmanager
def _errors_at(spec: StreamSpec, key: str) -> Iterator[None]:
    """Add the file and line of a key of the specification to errors."""
    try:
        yield
    except CsdpError as error:
        raise spec.error(key, str(error)) from None
    except OSError as error:
        raise spec.error(key, f"{error.filename or ''}: {error.strerror}".lstrip(": ")) from None
