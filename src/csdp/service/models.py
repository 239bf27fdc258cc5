"""What the answers look like: the schemas of the OpenAPI description."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

#: A number; the text "inf" where nothing bounds it.
Number = float | Literal["inf"]
Limit = float | None


class Record(BaseModel):
    """Closed: a field that is not described here is a mistake."""

    model_config = ConfigDict(extra="forbid")


class ProblemDetails(BaseModel):
    """An error (RFC 9457). It names the rule that was broken, never what a request held."""

    type: str = Field(examples=["urn:csdp:problem:rate"])
    title: str = Field(examples=["Too Many Requests"])
    status: int = Field(examples=[429])
    detail: str = Field(examples=["too many requests with this key; wait as Retry-After says"])
    errors: list[dict[str, str]] | None = None


class Health(Record):
    """Whether the service can do its work."""

    status: Literal["ok", "degraded"]
    version: str


class Limits(Record):
    """The limits of a dataset, null where there is none."""

    budget: Limit
    event_limit: Limit
    lifetime_limit: Limit


class DatasetInfo(Record):
    """What is published, of whom, under which terms."""

    name: str
    sequences: int
    names: list[str]
    query: str = Field(examples=["mean"])
    outputs: list[str]
    ages: int | list[int] = Field(description="How many ticks old the published readings are: one for all, or one each")
    epsilon_c: float = Field(description="Noise level of one release")
    adversary: str
    step: int = Field(description="Time from one tick to the next")
    origin: int
    lateness: float
    times: Literal["wall", "data"] = Field(
        description="wall: no tick is published before the wall clock has passed its end; data: the age of what is "
        "published is what the timestamps say"
    )
    limits: Limits
    guarantee: dict[str, Any] = Field(description="What is promised, in words and numbers")


class Counts(Record):
    """What became of messages, judged by form, names and times alone."""

    accepted: int = Field(description="Messages of an open tick, whatever their values were")
    late: int = Field(description="Their tick was closed already")
    ahead: int = Field(description="Their time lies too far ahead: of the wall clock, or of most sequences")
    unreadable: int = Field(description="No message, or of no sequence of this dataset")


class ReleaseInfo(Record):
    """One published tick."""

    id: int = Field(description="The entry of the ledger, and the id of its live event")
    tick: int
    time: int = Field(description="When the tick began")
    values: list[float] = Field(description="The noisy answer")
    estimate: list[float] = Field(description="The best linear estimate of the present answer")
    standard_error: list[float]
    ages: int | list[int]
    stale: int = Field(description="How many ticks older than planned the oldest reading was")
    epsilon_s: Number = Field(description="Leakage of the present after this release")


class Age(Record):
    """How old the reading of a sequence is that the newest release rests on."""

    sequence: str
    planned: int
    age: int | None = Field(description="In ticks; null where there is no reading, or nobody knows at the moment")


class AgeSummary(Record):
    """The ages of all sequences in four numbers."""

    smallest: int | None
    median: int | None
    largest: int | None
    never_read: int


class StatusInfo(Record):
    """How a dataset is doing."""

    newest_tick: int | None
    newest_time: int | None
    published: int
    refused: int
    lost: int
    present: Number = Field(description="Leakage of the present: what all releases together tell of anyone's state now")
    budget: Limit
    limits: Limits
    remaining: dict[str, Number]
    event_level: Number
    group_level: Number
    lifetime: Number
    ages: int | list[int]
    age_of_information: list[Age]
    age_summary: AgeSummary
    watermark: float | None = Field(description="Readings from before this time are late")
    closed_tick: int | None
    skipped: int | None = Field(description="Ticks without output since the process began")
    reason: str = Field(description="Why the last tick without output had none")
    times: Literal["wall", "data"] = Field(description="What ages rest on: the wall clock, or what the timestamps say")
    ahead: int | None = Field(description="Messages refused since the process began: their time lay too far ahead")
    put_back: int | None = Field(description="How often the clock of the stream was wrong and was put back")
    trouble: str = Field(description="Why publishing waits, or empty")


class LedgerLine(Record):
    """One entry of the ledger, without its content."""

    seq: int
    kind: Literal["open", "change", "reserve", "commit", "refuse"]
    tick: int | None
    recorded: str
    plan: str
    previous: str
    hash: str
    charge: dict[str, Any] | None = None
    charge_hash: str | None = None
    reason: str | None = None


class WhatIfAnswer(Record):
    """What one setting would cost and give."""

    age: int
    epsilon_c: float
    releases: Literal["1", "continual"]
    leakage: dict[str, Number] = Field(description="Every proven bound that applies")
    unproven: dict[str, Number] = Field(description="Formulas that can be below the truth; for comparison only")
    certified: Number = Field(description="The leakage that such a plan would certify")
    bound: str = Field(description="The bound that certifies it")
    mse: dict[str, float] = Field(description="Mean squared error of the raw output and of the linear estimate")
    no_data: float = Field(description="Mean squared error of publishing nothing")
    event_level: Number = Field(description="Plain epsilon-DP of one record")


class FrontierPoint(Record):
    """One setting and what it achieves."""

    age: int
    epsilon_c: float
    leakage: Number
    bound: str
    mse: float
    best: bool = Field(description="No other point has less leakage and less error")


class FrontierAnswer(Record):
    """The whole trade-off between leakage and error."""

    releases: Literal["1", "continual"]
    points: list[FrontierPoint]
    no_data: float


class NewKey(Record):
    """A wish for a key."""

    role: Literal["writer", "reader", "admin"]
    datasets: list[str] = Field(min_length=1, max_length=1000, description="Names, or * for all")
    label: str = Field(default="", max_length=100)


class KeyInfo(Record):
    """A key without its secret."""

    id: str
    role: Literal["writer", "reader", "admin"]
    datasets: list[str]
    label: str
    created: str


class KeyMade(KeyInfo):
    """A new key; `key` is shown this once and kept nowhere."""

    key: str
