"""The specification of a stream in one TOML file: plan file, ledger, limits, clock, source and sink of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from csdp.clock import Clock, Time, parse_duration, parse_time
from csdp.errors import InputError
from csdp.panel.read import SECTION, InputSpec, read_section
from csdp.stream.mqtt import Broker, check_topic
from csdp.toml_text import Document, unknown_key

#: Keys of a specification before 0.3, which the plan file replaces.
_OLD = ("chain", "discretiser", "target", "estimate")
_USE_PLAN = (
    "not in a specification any more: chain, query, ages, noise, discretiser and estimator are in the plan file. Make "
    'one with `csdp plan` or `csdp suggest`, and name it: plan = "plan.json"'
)


def _at_key(key: str, words: str) -> PydanticCustomError:
    return PydanticCustomError("at_key", "{words}", {"key": key, "words": words})


def _path(value: object, info: ValidationInfo) -> Path:
    """A path relative to the folder of the specification."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} given; the path of a file")
    assert info.context is not None
    folder: Path = info.context["folder"]
    return folder / value


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"{path.name!r} given; no such file")
    return path


def _ledger(name: str, info: ValidationInfo) -> str:
    return name if "://" in name else str(_path(name, info))


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError("the same text twice; each one once")
    return names


def _length(value: object) -> Time:
    seconds = parse_duration(value)
    if seconds < 0:
        raise ValueError(f"{value!r} given; 0 or more")
    return seconds


def _step(value: object) -> int:
    seconds = parse_duration(value)
    if not isinstance(seconds, int) or seconds < 1:
        raise ValueError(f"{value!r} given; a whole number of at least 1, or text such as '30s' or '1h'")
    return seconds


def _origin(value: object) -> int:
    time = parse_time(value)
    if not isinstance(time, int) or isinstance(value, float):
        raise ValueError(f"{value!r} given; a whole number, or a timestamp of a whole second")
    return time


Text = Annotated[str, Field(pattern=r"\S")]
FilePath = Annotated[Path, BeforeValidator(_path)]
ExistingFile = Annotated[Path, BeforeValidator(_path), AfterValidator(_existing)]
Limit = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Length = Annotated[Time, BeforeValidator(_length)]
Names = Annotated[tuple[Text, ...], Field(strict=False, min_length=1), AfterValidator(_different)]


class Section(BaseModel):
    """A table of the file: strict types, and no unknown keys."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, content: object) -> object:
        if isinstance(content, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key in content:
                if key == "password":  # a specification is shared
                    raise _at_key(key, "no secrets in this file; use password_file")
                if key not in known:
                    raise _at_key(key, unknown_key(key, known))
        return content


class LimitsSection(Section):
    """Limits of the dataset; None: no such limit."""

    budget: Limit | None = None
    event_limit: Limit | None = None
    lifetime_limit: Limit | None = None


class ClockSection(Section):
    """The grid of ticks, see `csdp.clock.Clock`; `advance`: what closes ticks while no reading arrives."""

    step: Annotated[int, BeforeValidator(_step)]
    origin: Annotated[int, BeforeValidator(_origin)] = 0
    lateness: Length = 0
    ahead: Length | None = None
    times: Literal["wall", "data"] = "wall"
    advance: Literal["readings", "wall"] = "readings"
    _clock: Clock = PrivateAttr()

    @model_validator(mode="after")
    def _make_clock(self) -> Self:
        if self.advance == "wall" and self.times == "data":
            raise _at_key("advance", "'wall' given with times = 'data'; the wall clock says nothing about such times")
        try:
            self._clock = Clock(**self.model_dump(exclude={"advance"}))
        except InputError as error:
            raise ValueError(str(error).removeprefix("clock: ")) from None
        return self


class StdinPlace(Section):
    """A source without settings."""

    kind: Literal["stdin", "input", "http"]


class StdoutPlace(Section):
    """A sink without settings."""

    kind: Literal["stdout", "none"]


class FileSourcePlace(Section):
    """A file of lines to read; with `follow` also those that are added later."""

    kind: Literal["file"]
    path: FilePath
    follow: bool = True


class FileSinkPlace(Section):
    """A file of lines to write."""

    kind: Literal["file"]
    path: FilePath


class MqttSourcePlace(Section):
    """A topic of a broker. Its password is in a file."""

    kind: Literal["mqtt"]
    topic: Annotated[Text, AfterValidator(check_topic)]
    client_id: Text | None = None
    host: Text = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    username: Text | None = None
    password_file: FilePath | None = None
    tls: bool = False
    ca_file: ExistingFile | None = None
    cert_file: ExistingFile | None = None
    key_file: ExistingFile | None = None
    _broker: Broker = PrivateAttr()

    @model_validator(mode="after")
    def _make_broker(self) -> Self:
        for key in ("ca_file", "cert_file", "key_file"):
            if getattr(self, key) is not None and not self.tls:
                raise _at_key(key, "given, but not used without tls = true")
        password = self._read_password()
        if password is not None and self.username is None:
            raise _at_key("username", "a password without a username given")
        self._broker = Broker(
            host=self.host,
            port=self.port or (8883 if self.tls else 1883),
            username=self.username,
            password=password,
            tls=self.tls,
            ca_file=self.ca_file,
            cert_file=self.cert_file,
            key_file=self.key_file,
        )
        return self

    def _read_password(self) -> str | None:
        if self.password_file is None:
            return None
        try:
            return self.password_file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError):
            raise _at_key("password_file", f"{self.password_file.name!r} given; it cannot be read") from None

    @property
    def broker(self) -> Broker:
        """The broker with its password."""
        return self._broker


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
    limits_section: LimitsSection = Field(LimitsSection(), alias="limits")
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
                    raise _at_key(key, _USE_PLAN)
        return content

    @property
    def limits(self) -> dict[str, float | None]:
        """The limits of the dataset by their names."""
        return self.limits_section.model_dump()

    @property
    def clock(self) -> Clock:
        """The grid of ticks."""
        return self.clock_section._clock

    @property
    def by_wall_clock(self) -> bool:
        """Whether the wall clock closes ticks while no reading arrives."""
        return self.clock_section.advance == "wall"

    @property
    def table(self) -> InputSpec | None:
        """The table of readings in `[input]`."""
        return self._table

    def error(self, key: str, message: str) -> InputError:
        """An error that names the line of a key, such as `source.path`."""
        return self._document.error(tuple(key.split(".")), message)

    @property
    def path(self) -> Path:
        """The file of the specification."""
        return self._document.path


def read_spec(path: str | Path) -> StreamSpec:
    """Read and check a specification; paths in it are relative to its folder.

    Every error names file and line, what was given and what is allowed.
    """
    document = Document(path)
    spec = document.read(StreamSpec, document.content)
    spec._document = document
    spec._table = read_section(document) if SECTION in document.content else None
    if spec.source.kind == "input" and spec.table is None:
        raise spec.error("source.kind", "'input' given without a section [input]; `csdp open DATA -o FILE` writes one")
    return spec
