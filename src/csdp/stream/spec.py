"""The specification of a stream: one TOML file that says what is published, of whom, when, from where and to where."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from csdp.clock import Clock, Time, parse_duration, parse_time
from csdp.errors import InputError
from csdp.stream.mqtt import Broker, checked_topic
from csdp.stream.toml import Document, Section, one_of, positive, text, texts, whole, wholes, yes_or_no

LIMITS = ("budget", "event_limit", "lifetime_limit")


@dataclass(frozen=True)
class GivenPlan:
    """A plan by its numbers."""

    query: str
    ages: int | tuple[int, ...]
    epsilon_c: float
    adversary: str
    stale_limit: int


@dataclass(frozen=True)
class Target:
    """What a plan is searched for: least error within a budget, or least leakage within an error.

    `file` keeps the plan that was found, so that the next start need not search.
    """

    query: str
    budget: float | None
    max_mse: float | None
    min_age: int
    max_age: int
    vector: bool
    estimate: str
    adversary: str
    event_limit: float
    stale_limit: int
    file: Path | None


@dataclass(frozen=True)
class Place:
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
    """A stream as its file says, checked; `error` makes an error at the line of a key."""

    document: Document
    dataset: str
    ledger: str
    chain: Path
    sequences: tuple[str, ...] | None
    discretiser: Path | None
    state_file: Path | None
    drift: bool
    plan: Path | GivenPlan | Target
    limits: dict[str, float | None]
    clock: Clock
    by_wall_clock: bool
    source: Place
    sink: Place

    def error(self, key: str, message: str) -> InputError:
        """An error at the line of a key, such as `plan.file`."""
        return self.document.error(tuple(key.split(".")), message)


def read_spec(path: str | Path) -> StreamSpec:
    """Read and check a specification; paths in it are relative to its folder.

    Every error names file and line, what was given and what is allowed.
    """
    document = Document(path)
    folder = document.path.parent
    top = document.section()
    top.passed("plan", "target", "limits", "clock", "source", "sink")
    dataset = top.take("dataset", text)
    ledger = top.take("ledger", text)
    chain = folder / top.take("chain", text)
    sequences = top.take("sequences", texts, None)
    discretiser = top.take("discretiser", text, None)
    state_file = top.take("state_file", text, None)
    drift = top.take("drift", yes_or_no, False)
    plan = _plan(document, folder)
    clock, by_wall_clock = _clock(document.section("clock"))
    spec = StreamSpec(
        document=document,
        dataset=dataset,
        ledger=ledger if "://" in ledger else str(folder / ledger),
        chain=chain,
        sequences=sequences,
        discretiser=None if discretiser is None else folder / discretiser,
        state_file=None if state_file is None else folder / state_file,
        drift=drift,
        plan=plan,
        limits=_limits(document.section("limits"), plan),
        clock=clock,
        by_wall_clock=by_wall_clock,
        source=_place(document, "source", folder, dataset),
        sink=_place(document, "sink", folder, dataset),
    )
    top.finish()
    return spec


def _plan(document: Document, folder: Path) -> Path | GivenPlan | Target:
    both = [name for name in ("plan", "target") if name in document.content]
    if len(both) != 1:
        where = (both[1],) if both else ()
        raise document.error(where, f"{'both' if both else 'neither'} of [plan] and [target] given; give one of them")
    if both == ["target"]:
        return _target(document.section("target"), folder)
    section = document.section("plan")
    if "file" in section:
        path = folder / section.take("file", text)
        section.finish()
        return path
    if ("age" in section) == ("ages" in section):
        raise section.error("ages", "give one of 'age' (for all sequences), 'ages' (a list), or 'file'")
    found = GivenPlan(
        query=section.take("query", _query, "mean"),
        ages=section.take("age", whole(0)) if "age" in section else section.take("ages", wholes),
        epsilon_c=section.take("epsilon_c", positive),
        adversary=section.take("adversary", one_of("informed", "uninformed", "any"), "informed"),
        stale_limit=section.take("stale_limit", whole(0, 10_000), 0),
    )
    section.passed("age", "ages", "file")
    section.finish()
    return found


def _target(section: Section, folder: Path) -> Target:
    if ("budget" in section) == ("max_mse" in section):
        raise section.error("max_mse", "give one of 'budget' (least error) and 'max_mse' (least leakage)")
    file = section.take("file", text, None)
    found = Target(
        file=None if file is None else folder / file,
        query=section.take("query", _query, "mean"),
        budget=section.take("budget", positive, None),
        max_mse=section.take("max_mse", positive, None),
        min_age=section.take("min_age", whole(0), 1),
        max_age=section.take("max_age", whole(0), 20),
        vector=section.take("vector", yes_or_no, False),
        estimate=section.take("estimate", one_of("raw", "linear"), "raw"),
        adversary=section.take("adversary", one_of("informed", "uninformed", "any"), "informed"),
        event_limit=section.take("event_limit", positive, 10.0),
        stale_limit=section.take("stale_limit", whole(0, 10_000), 0),
    )
    section.finish()
    return found


def _query(value: object) -> str:
    from csdp.queries import parse_query

    name = text(value)
    parse_query(name)
    return name


def _limits(section: Section, plan: Path | GivenPlan | Target) -> dict[str, float | None]:
    """The limits of the dataset; a budget that was planned for is a ceiling too."""
    planned = {"budget": plan.budget} if isinstance(plan, Target) else {}
    found = {name: section.take(name, positive, planned.get(name)) for name in LIMITS}
    section.finish()
    return found


def _clock(section: Section) -> tuple[Clock, bool]:
    def length(value: object) -> Time:
        found = parse_duration(value)
        if found < 0:
            raise InputError(f"{value!r} given; 0 or more")
        return found

    def step(value: object) -> int:
        found = parse_duration(value)
        if not isinstance(found, int) or found < 1:
            raise InputError(f"{value!r} given; a whole number of at least 1, or text such as '30s' or '1h'")
        return found

    def origin(value: object) -> int:
        found = parse_time(value if isinstance(value, str) else whole(-(2**53))(value))
        if not isinstance(found, int):
            raise InputError(f"{value!r} given; a whole number, or a timestamp of a whole second")
        return found

    at_once: Time = 0
    clock = Clock(
        step=section.take("step", step),
        origin=section.take("origin", origin, 0),
        lateness=section.take("lateness", length, at_once),
        times="data" if section.take("times", one_of("wall", "data"), "wall") == "data" else "wall",
    )
    # Each on its own, so that what does not go with the rest is told at its line.
    clock = section.take("ahead", lambda value: replace(clock, ahead=length(value)), clock)
    clock = section.take("jump", lambda value: replace(clock, jump=whole(1)(value)), clock)
    by_wall_clock = section.take("advance", one_of("readings", "wall"), "readings") == "wall"
    if by_wall_clock and clock.times == "data":
        raise section.error("advance", "'wall' given with times = 'data'; the wall clock says nothing about such times")
    section.finish()
    return clock, by_wall_clock


def _place(document: Document, which: Literal["source", "sink"], folder: Path, dataset: str) -> Place:
    section = document.section(which)
    plain = "stdin" if which == "source" else "stdout"
    kinds = (plain, "file", "mqtt", "http") if which == "source" else (plain, "file", "mqtt", "none")
    kind = section.take("kind", one_of(*kinds))
    if kind == "file":
        place = Place(
            kind,
            path=folder / section.take("path", text),
            follow=section.take("follow", yes_or_no, True) if which == "source" else True,
        )
    elif kind == "mqtt":
        name = f"csdp-{dataset}" if which == "source" else f"csdp-{dataset}-out"
        place = Place(
            kind,
            topic=section.take("topic", lambda value: checked_topic(text(value))),
            client_id=section.take("client_id", text, name),
            retain=section.take("retain", yes_or_no, False) if which == "sink" else False,
            broker=_broker(section, folder),
        )
    else:
        place = Place(kind)
    section.finish()
    return place


def _broker(section: Section, folder: Path) -> Broker:
    def file(key: str) -> Path | None:
        given = section.take(key, text, None)
        if given is None:
            return None
        if not (folder / given).is_file():
            raise section.error(key, f"{given!r} given; no such file")
        return folder / given

    tls = section.take("tls", yes_or_no, False)
    username = section.take("username", text, None)
    found = Broker(
        host=section.take("host", text, "127.0.0.1"),
        port=section.take("port", whole(1, 65535), 8883 if tls else 1883),
        username=username,
        password=_password(section, folder),
        tls=tls,
        ca_file=file("ca_file"),
        cert_file=file("cert_file"),
        key_file=file("key_file"),
        keepalive=section.take("keepalive", whole(5, 3600), 30),
    )
    if found.password is not None and username is None:
        raise section.error("username", "a password without a username given")
    if not tls:
        for key in ("ca_file", "cert_file", "key_file"):
            if key in section:
                raise section.error(key, "given, but not used without tls = true")
    return found


def _password(section: Section, folder: Path) -> str | None:
    """From a file or from the environment: a specification is shown around, so it holds no secret."""
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
