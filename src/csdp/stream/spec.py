"""The specification of a stream, one TOML file: model, plan, limits and clock of a dataset, its source and its sink."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from csdp.clock import Clock, Time, parse_duration, parse_time
from csdp.errors import InputError
from csdp.panel.input import SECTION, InputSpec, read_section
from csdp.stream.mqtt import Broker, check_topic
from csdp.toml_text import Document, TomlTable, boolean, integer, integers, one_of, positive, text, texts

LIMITS = ("budget", "event_limit", "lifetime_limit")


@dataclass(frozen=True)
class ExplicitPlan:
    """A plan whose ages and noise level are given."""

    query: str
    ages: int | tuple[int, ...]
    epsilon_c: float
    adversary: str
    protect: float | None
    stale_limit: int


@dataclass(frozen=True)
class PlanTarget:
    """A plan to be searched for: least error within a budget, least leakage within an error, or least delay for both
    (about="then").

    `file`: where the plan is stored, so that the next start need not search.
    """

    query: str
    budget: float | None
    max_mse: float | None
    min_age: int
    max_age: int
    vector: bool
    estimate: str
    about: str
    adversary: str
    protect: float | None
    event_limit: float
    stale_limit: int
    file: Path | None


@dataclass(frozen=True)
class EstimateSpec:
    """What estimates are about ("now", "then"; None: as the plan says), and the file of a learned estimator."""

    about: Literal["now", "then"] | None = None
    file: Path | None = None


@dataclass(frozen=True)
class Endpoint:
    """A source or a sink."""

    kind: str
    path: Path | None = None
    follow: bool = True
    topic: str = ""
    client_id: str = ""
    retain: bool = False
    broker: Broker | None = None


@dataclass(frozen=True)
class StreamSpec:
    """The content of a specification, checked."""

    document: Document
    dataset: str
    ledger: str
    chain: Path
    sequences: tuple[str, ...] | None
    discretiser: Path | None
    state_file: Path | None
    missing_up_to: int | None
    drift: bool
    model_unchecked: bool
    anyway: bool  #: publish even if less than 5 % of the error of guessing the usual value is removed
    plan: Path | ExplicitPlan | PlanTarget
    estimate: EstimateSpec
    limits: dict[str, float | None]
    clock: Clock
    by_wall_clock: bool
    source: Endpoint
    sink: Endpoint
    input: InputSpec | None = None

    def error(self, key: str, message: str) -> InputError:
        """An error that names the line of a key, such as `plan.file`."""
        return self.document.error(tuple(key.split(".")), message)


def read_spec(path: str | Path) -> StreamSpec:
    """Read and check a specification; paths in it are relative to its folder.

    Every error names file and line, what was given and what is allowed.
    """
    document = Document(path)
    folder = document.path.parent
    top = document.section()
    top.allow("plan", "target", "estimate", "limits", "clock", "source", "sink", SECTION)
    dataset = top.take("dataset", text)
    ledger = top.take("ledger", text)
    chain = folder / top.take("chain", text)
    sequences = top.take("sequences", texts, None)
    discretiser = top.take("discretiser", text, None)
    state_file = top.take("state_file", text, None)
    missing_up_to = top.take("missing_up_to", integer(-(2**53)), None)
    drift = top.take("drift", boolean, False)
    model_unchecked = top.take("model_unchecked", boolean, False)
    anyway = top.take("anyway", boolean, False)
    estimate = _estimate(document.section("estimate"), folder)
    plan = _plan(document, folder, estimate)
    clock, by_wall_clock = _clock(document.section("clock"))
    spec = StreamSpec(
        document=document,
        dataset=dataset,
        ledger=ledger if "://" in ledger else str(folder / ledger),
        chain=chain,
        sequences=sequences,
        discretiser=None if discretiser is None else folder / discretiser,
        state_file=None if state_file is None else folder / state_file,
        missing_up_to=missing_up_to,
        drift=drift,
        model_unchecked=model_unchecked,
        anyway=anyway,
        plan=plan,
        estimate=estimate,
        limits=_limits(document.section("limits"), plan),
        clock=clock,
        by_wall_clock=by_wall_clock,
        source=_place(document, "source", folder, dataset),
        sink=_place(document, "sink", folder, dataset),
        input=read_section(document.section(SECTION), folder) if SECTION in document.content else None,
    )
    if spec.source.kind == "input" and spec.input is None:
        raise spec.error("source.kind", "'input' given without a section [input]; `csdp open DATA -o FILE` writes one")
    top.finish()
    return spec


def _estimate(section: TomlTable, folder: Path) -> EstimateSpec:
    about, file = section.take("about", one_of("now", "then"), None), section.take("file", text, None)
    section.finish()
    kind: Literal["now", "then"] | None = None if about is None else "then" if about == "then" else "now"
    return EstimateSpec(kind, None if file is None else folder / file)


def _plan(document: Document, folder: Path, estimate: EstimateSpec) -> Path | ExplicitPlan | PlanTarget:
    tables = [name for name in ("plan", "target") if name in document.content]
    if len(tables) != 1:
        where = (tables[1],) if tables else ()
        raise document.error(where, f"{'both' if tables else 'neither'} of [plan] and [target] given; give one of them")
    if tables == ["target"]:
        return _target(document.section("target"), folder, estimate.about or "now")
    section = document.section("plan")
    if "file" in section:
        path = folder / section.take("file", text)
        section.finish()
        return path
    if ("age" in section) == ("ages" in section):
        raise section.error("ages", "give one of 'age' (for all sequences), 'ages' (a list), or 'file'")
    plan = ExplicitPlan(
        query=section.take("query", _query, "mean"),
        ages=section.take("age", integer(0)) if "age" in section else section.take("ages", integers),
        epsilon_c=section.take("epsilon_c", positive),
        adversary=section.take("adversary", one_of("informed", "uninformed", "any"), "informed"),
        protect=section.take("protect", positive, None),
        stale_limit=section.take("stale_limit", integer(0, 10_000), 0),
    )
    section.allow("age", "ages", "file")
    section.finish()
    return plan


def _target(section: TomlTable, folder: Path, about: str) -> PlanTarget:
    if about == "then" and not ("budget" in section and "max_mse" in section):
        raise section.error(
            "max_mse",
            "give both 'budget' and 'max_mse': for numbers about the time of the readings the least delay is found",
        )
    if about == "now" and ("budget" in section) == ("max_mse" in section):
        raise section.error("max_mse", "give one of 'budget' (least error) and 'max_mse' (least leakage)")
    file = section.take("file", text, None)
    target = PlanTarget(
        file=None if file is None else folder / file,
        query=section.take("query", _query, "mean"),
        budget=section.take("budget", positive, None),
        max_mse=section.take("max_mse", positive, None),
        min_age=section.take("min_age", integer(0), 1),
        max_age=section.take("max_age", integer(0), 20),
        vector=section.take("vector", boolean, False),
        estimate=section.take("estimate", one_of("history", "linear", "posterior", "raw"), "history"),
        about=about,
        adversary=section.take("adversary", one_of("informed", "uninformed", "any"), "informed"),
        protect=section.take("protect", positive, None),
        event_limit=section.take("event_limit", positive, 10.0),
        stale_limit=section.take("stale_limit", integer(0, 10_000), 0),
    )
    section.finish()
    return target


def _query(value: object) -> str:
    from csdp.query import parse_query

    name = text(value)
    parse_query(name)
    return name


def _limits(section: TomlTable, plan: Path | ExplicitPlan | PlanTarget) -> dict[str, float | None]:
    """The limits of the dataset; the budget of a target is the default for the limit of that name."""
    planned = {"budget": plan.budget} if isinstance(plan, PlanTarget) else {}
    limits = {name: section.take(name, positive, planned.get(name)) for name in LIMITS}
    section.finish()
    return limits


def _clock(section: TomlTable) -> tuple[Clock, bool]:
    def length(value: object) -> Time:
        seconds = parse_duration(value)
        if seconds < 0:
            raise InputError(f"{value!r} given; 0 or more")
        return seconds

    def step(value: object) -> int:
        seconds = parse_duration(value)
        if not isinstance(seconds, int) or seconds < 1:
            raise InputError(f"{value!r} given; a whole number of at least 1, or text such as '30s' or '1h'")
        return seconds

    def origin(value: object) -> int:
        time = parse_time(value if isinstance(value, str) else integer(-(2**53))(value))
        if not isinstance(time, int):
            raise InputError(f"{value!r} given; a whole number, or a timestamp of a whole second")
        return time

    at_once: Time = 0
    clock = Clock(
        step=section.take("step", step),
        origin=section.take("origin", origin, 0),
        lateness=section.take("lateness", length, at_once),
        times="data" if section.take("times", one_of("wall", "data"), "wall") == "data" else "wall",
    )
    # One after the other, so that an error names the line of the key that does not fit.
    clock = section.take("ahead", lambda value: replace(clock, ahead=length(value)), clock)
    clock = section.take("jump", lambda value: replace(clock, jump=integer(1)(value)), clock)
    by_wall_clock = section.take("advance", one_of("readings", "wall"), "readings") == "wall"
    if by_wall_clock and clock.times == "data":
        raise section.error("advance", "'wall' given with times = 'data'; the wall clock says nothing about such times")
    section.finish()
    return clock, by_wall_clock


def _place(document: Document, which: Literal["source", "sink"], folder: Path, dataset: str) -> Endpoint:
    section = document.section(which)
    plain = "stdin" if which == "source" else "stdout"
    kinds = (plain, "file", "input", "mqtt", "http") if which == "source" else (plain, "file", "mqtt", "none")
    kind = section.take("kind", one_of(*kinds))
    if kind == "file":
        place = Endpoint(
            kind,
            path=folder / section.take("path", text),
            follow=section.take("follow", boolean, True) if which == "source" else True,
        )
    elif kind == "mqtt":
        name = f"csdp-{dataset}" if which == "source" else f"csdp-{dataset}-out"
        place = Endpoint(
            kind,
            topic=section.take("topic", lambda value: check_topic(text(value))),
            client_id=section.take("client_id", text, name),
            retain=section.take("retain", boolean, False) if which == "sink" else False,
            broker=_broker(section, folder),
        )
    else:
        place = Endpoint(kind)
    section.finish()
    return place


def _broker(section: TomlTable, folder: Path) -> Broker:
    def file(key: str) -> Path | None:
        name = section.take(key, text, None)
        if name is None:
            return None
        if not (folder / name).is_file():
            raise section.error(key, f"{name!r} given; no such file")
        return folder / name

    tls = section.take("tls", boolean, False)
    username = section.take("username", text, None)
    broker = Broker(
        host=section.take("host", text, "127.0.0.1"),
        port=section.take("port", integer(1, 65535), 8883 if tls else 1883),
        username=username,
        password=_password(section, folder),
        tls=tls,
        ca_file=file("ca_file"),
        cert_file=file("cert_file"),
        key_file=file("key_file"),
        keepalive=section.take("keepalive", integer(5, 3600), 30),
    )
    if broker.password is not None and username is None:
        raise section.error("username", "a password without a username given")
    if not tls:
        for key in ("ca_file", "cert_file", "key_file"):
            if key in section:
                raise section.error(key, "given, but not used without tls = true")
    return broker


def _password(section: TomlTable, folder: Path) -> str | None:
    """The password, from a file or the environment: a specification is shared, so it holds no secret."""
    if "password" in section:
        raise section.error("password", "no secrets in this file; use password_file or password_env")
    file, variable = section.take("password_file", text, None), section.take("password_env", text, None)
    if file is not None and variable is not None:
        raise section.error("password_env", "both password_file and password_env given; give one")
    if variable is not None:
        if variable not in os.environ:
            raise section.error("password_env", f"the environment has no variable {variable!r}")
        return os.environ[variable]
    if file is None:
        return None
    try:
        return (folder / file).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError):
        raise section.error("password_file", f"{file!r} given; it cannot be read") from None
