"""The specification of a stream in one TOML file, and what it names: plan file, ledger, runner, source and sink."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, Self

import pydantic
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationInfo,
    model_validator,
)

from csdp.chain import CoupledChain, JointChain
from csdp.clock import Clock, Time, parse_time
from csdp.errors import CsdpError, InputError, LedgerError, NotUsefulError, PrivacyLeakWarning
from csdp.ledger import Ledger
from csdp.panel.panel import arrange_names
from csdp.panel.read import SECTION, InputSpec, read_section
from csdp.panel.times import parse_step
from csdp.plan import Plan
from csdp.planning.plan_file import PlanFile
from csdp.publisher import Publisher, Release, Skipped
from csdp.stream.messages import find_states
from csdp.stream.mqtt import MqttSink, MqttSource
from csdp.stream.runner import Runner
from csdp.stream.sinks import FileSink, LineSink, Sink
from csdp.stream.sources import FileSource, Source, StreamSource, TableSource
from csdp.toml_text import Document, unknown_key

if TYPE_CHECKING:
    from csdp.fitting.drift import DriftCheck

#: Keys of a specification before 0.3, which the plan file replaces.
_OLD = ("chain", "discretiser", "target", "estimate")
_USE_PLAN = (
    "not in a specification any more: chain, query, ages, noise, discretiser and estimator are in the plan file. Make "
    'one with `csdp plan` or `csdp suggest`, and name it: plan = "plan.json"'
)


# ---- what a specification says ---------------------------------------------------------------------------------------


def _path(value: object, info: ValidationInfo) -> object:
    """A path relative to the folder of the specification."""
    return (info.context or {}).get("folder", Path()) / value if isinstance(value, str) and value.strip() else value


def _ledger(name: str, info: ValidationInfo) -> str:
    return name if "://" in name else str(_path(name, info))


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError("the same text twice; each one once")
    return names


def _seconds(value: object) -> object:
    """A length of time in text, such as "5min", as seconds."""
    try:
        return parse_step(value, stamps=True) if isinstance(value, str) else value
    except InputError as error:
        raise ValueError(str(error).removeprefix("step: ")) from None


def _topic(topic: str) -> str:
    if topic != topic.strip("/") or set(topic) & set("+#\0"):
        raise ValueError(f"topic {topic!r} given; a text without +, # and slashes at its ends")
    return topic


def _check_keys(content: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in content:
        if key not in known:
            raise ValueError(f"{key}: {unknown_key(key, known)}")


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
FilePath = Annotated[Path, BeforeValidator(_path)]
ExistingFile = Annotated[pydantic.FilePath, BeforeValidator(_path)]
Limit = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Length = Annotated[Time, BeforeValidator(_seconds)]
Names = Annotated[tuple[Text, ...], Field(strict=False, min_length=1), AfterValidator(_different)]


class Section(BaseModel):
    """A table of the file: strict types, and no unknown keys."""

    model_config = ConfigDict(strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, content: object) -> object:
        if isinstance(content, dict):
            _check_keys(content, tuple(field.alias or name for name, field in cls.model_fields.items()))
        return content


class LimitsSection(Section):
    """Limits of the dataset, see `csdp.Publisher`; `window` counts ticks."""

    budget: Limit | None = None
    moment_limit: Limit | None = None
    event_limit: Limit | None = None
    window: Annotated[int, Field(ge=1)] | None = None
    window_limit: Limit | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_old_name(cls, content: object) -> object:
        if isinstance(content, dict) and "lifetime_limit" in content:
            raise ValueError(
                f"lifetime_limit: its name is moment_limit now; moment_limit = {content['lifetime_limit']}"
            )
        return content

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        if self.window_limit is not None and self.window is None:
            raise ValueError("window_limit: given without window, the number of consecutive ticks that it limits")
        return self


class ClockSection(Section):
    """The grid of ticks, see `csdp.clock.Clock`; `advance`: what closes ticks while no reading arrives."""

    step: Annotated[int, BeforeValidator(_seconds)]
    origin: Annotated[int, BeforeValidator(lambda value: parse_time(value) if isinstance(value, str) else value)] = 0
    lateness: Length = 0
    ahead: Length | None = None
    times: Literal["wall", "data"] = "wall"
    advance: Literal["readings", "wall"] = "readings"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.advance == "wall" and self.times == "data":
            raise ValueError("advance: 'wall' given with times = 'data'; the wall clock says nothing about such times")
        try:
            self.clock()
        except InputError as error:
            raise ValueError(str(error).removeprefix("clock: ")) from None
        return self

    def clock(self) -> Clock:
        """The clock that it describes."""
        return Clock(**self.model_dump(exclude={"advance"}))


class StdinPlace(Section):
    """A source without settings."""

    kind: Literal["stdin", "input", "http"]


class StdoutPlace(Section):
    """A sink without settings."""

    kind: Literal["stdout", "none"]


class FileSinkPlace(Section):
    """A file of lines to write."""

    kind: Literal["file"]
    path: FilePath


class FileSourcePlace(FileSinkPlace):
    """A file of lines to read; with `follow` also those that are added later."""

    follow: bool = True


class MqttSourcePlace(Section):
    """A topic of a broker.

    `tls`: encrypt, and check the broker's certificate against `ca_file` (or the system's authorities); `cert_file` and
    `key_file` are the client's certificate, where the broker asks for one.
    """

    kind: Literal["mqtt"] = "mqtt"
    topic: Annotated[Text, AfterValidator(_topic)]
    client_id: Text | None = None
    host: Text = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    username: Text | None = None
    password_file: ExistingFile | None = None
    tls: bool = False
    ca_file: ExistingFile | None = None
    cert_file: ExistingFile | None = None
    key_file: ExistingFile | None = None

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if not self.tls and (self.ca_file or self.cert_file or self.key_file):
            raise ValueError("ca_file, cert_file or key_file given, but not used without tls = true")
        return self


class MqttSinkPlace(MqttSourcePlace):
    """A topic of a broker to publish to; `retain`: the broker keeps the newest output."""

    retain: bool = False


class StreamSpec(Section):
    """The content of a specification, checked."""

    dataset: Text
    ledger: Annotated[Text, AfterValidator(_ledger)]
    plan: FilePath
    sequences: Names | None = None
    state_file: FilePath | None = None
    missing_up_to: int | None = None
    drift: bool = False
    model_unchecked: bool = False
    anyway: bool = False  #: publish even if less than 5 % of the error of guessing the usual value is removed
    limits: LimitsSection = LimitsSection()
    clock_section: ClockSection = Field(alias="clock")
    source: Annotated[StdinPlace | FileSourcePlace | MqttSourcePlace, Field(discriminator="kind")]
    sink: Annotated[StdoutPlace | FileSinkPlace | MqttSinkPlace, Field(discriminator="kind")]
    input: dict[str, Any] | None = None
    _document: Document = PrivateAttr()
    _table: InputSpec | None = PrivateAttr(None)

    @model_validator(mode="before")
    @classmethod
    def _refuse_old_keys(cls, content: object) -> object:
        if isinstance(content, dict):
            for key in (*_OLD, *(["plan"] if isinstance(content.get("plan"), dict) else [])):
                if key in content:
                    raise ValueError(f"{key}: {_USE_PLAN}")
        return content

    @cached_property
    def clock(self) -> Clock:
        """The grid of ticks."""
        return self.clock_section.clock()

    @property
    def by_wall_clock(self) -> bool:
        """Whether the wall clock closes ticks while no reading arrives."""
        return self.clock_section.advance == "wall"

    @property
    def path(self) -> Path:
        """The file of the specification."""
        return self._document.path

    def error(self, key: str, message: str) -> InputError:
        """An error that names a key, such as `source.path`."""
        return self._document.error((key,), message)


def read_spec(path: str | Path) -> StreamSpec:
    """Read and check a specification; paths in it are relative to its folder.

    Every error names file and key, what was given and what is allowed.
    """
    document = Document(path)
    spec = document.read(StreamSpec, document.content)
    spec._document = document
    spec._table = read_section(document) if SECTION in document.content else None
    if spec.source.kind == "input" and spec._table is None:
        raise spec.error("source.kind", "'input' given without a section [input]; `csdp open DATA -o FILE` writes one")
    return spec


# ---- from a specification to a running stream ------------------------------------------------------------------------


@contextmanager
def open_stream(spec: StreamSpec, *, stdin: BinaryIO | None = None) -> Iterator[tuple[Runner, Source]]:
    """Open the runner and the source of a specification; everything is closed at the end, also after an error.

    Args:
        spec: the specification; errors of the files that it names carry its file and key.
        stdin: read instead of standard input.
    """
    if spec.source.kind == "http":
        raise spec.error(
            "source.kind", "'http' is for `csdp serve`; `csdp stream` reads stdin, a file, a table or mqtt"
        )
    plan = load_plan(spec)
    with _open_ledger(spec) as ledger:
        ledger.hold(spec.dataset)
        with open_runner(spec, plan, ledger) as runner:
            yield runner, open_source(spec, plan, stdin)


@contextmanager
def open_runner(
    spec: StreamSpec,
    plan: PlanFile,
    ledger: Ledger,
    *,
    on_outcome: Callable[[Release | Skipped], None] | None = None,
) -> Iterator[Runner]:
    """Open the runner of a specification with its sink, without a source.

    Args:
        spec: the specification.
        plan: its plan, see `load_plan`.
        ledger: open, and holding the dataset.
        on_outcome: called with every release and every tick without output.
    """
    names = resolve_names(spec, plan)
    with ExitStack() as stack:
        publisher = make_publisher(spec, plan, ledger)
        # Code is compiled and the first states are computed here, not while the writer of the first reading waits.
        publisher.accountant.peak(publisher.accountant.history(2))
        sink = _open_sink(spec)
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
        **spec.limits.model_dump(),
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


def open_source(spec: StreamSpec, plan: PlanFile, stdin: BinaryIO | None = None) -> Source:
    """The source of a specification; a table is replayed from the end of the plan's public past on."""
    place = spec.source
    with _errors_at(spec, "source"):
        if isinstance(place, MqttSourcePlace):
            return MqttSource(place, client_id=place.client_id or f"csdp-{spec.dataset}")
        if isinstance(place, FileSourcePlace):
            return FileSource(place.path, follow=place.follow)
        if spec._table is not None and place.kind == "input":
            return TableSource(spec._table, after=plan.until)
    return StreamSource(sys.stdin.buffer if stdin is None else stdin)


def _open_sink(spec: StreamSpec) -> Sink | None:
    place = spec.sink
    with _errors_at(spec, "sink"):
        if isinstance(place, MqttSinkPlace):
            return MqttSink(place, client_id=place.client_id or f"csdp-{spec.dataset}-out")
        if isinstance(place, FileSinkPlace):
            return FileSink(place.path)
    return None if place.kind == "none" else LineSink(sys.stdout.buffer)


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


@contextmanager
def _errors_at(spec: StreamSpec, key: str) -> Iterator[None]:
    """Add the file and a key of the specification to errors."""
    try:
        yield
    except CsdpError as error:
        raise spec.error(key, str(error)) from None
    except OSError as error:
        raise spec.error(key, f"{error.filename or ''}: {error.strerror}".lstrip(": ")) from None
