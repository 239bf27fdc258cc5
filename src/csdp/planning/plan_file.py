"""A plan file: the plan, its estimator, the discretiser of its readings, its frontier, and the end of its past."""

from __future__ import annotations

import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy.typing as npt

from csdp.check import text
from csdp.errors import InputError
from csdp.estimate import Estimator, LearnedEstimator
from csdp.estimate.result import About, check_about
from csdp.numbers import parse_json
from csdp.panel import Discretiser
from csdp.panel.times import read_moment
from csdp.plan import Plan
from csdp.planning import Frontier
from csdp.publisher.estimates import check_estimator, plan_estimator
from csdp.publisher.sources import check_states_source


@dataclass(frozen=True)
class PlanFile:
    """Everything that publishing needs besides readings and a ledger. Only the plan is part of its digest.

    Args:
        plan: what is published.
        about: what estimates are about if none was learned.
        learned: the estimator that a public past taught; without one, estimates follow from the model.
        discretiser: turns readings into states; without one, a reading is the value of a state.
        frontier: what settings around those of the plan achieve.
        until: when the public past ended from which the plan was made, as an ISO 8601 text (UTC if it has no offset)
            or a tick number; only what follows may be published. None if no past was used.
    """

    plan: Plan
    about: About = "now"
    learned: LearnedEstimator | None = None
    discretiser: Discretiser | None = None
    frontier: Frontier | None = None
    until: str | int | None = None

    def __post_init__(self) -> None:
        check_about(self.about)
        check_estimator(self.plan, self.learned)
        _check_until(self.until)
        if self.discretiser is None:
            return
        check_states_source(self.discretiser.source, self.plan)
        states = self.plan.model.states
        if self.discretiser.state_count > states:
            raise InputError(
                f"discretiser: {self.discretiser.state_count} states given, the chain has {states}; give the "
                "discretiser that the chain was fitted with"
            )

    @property
    def estimator(self) -> Estimator | None:
        """The learned estimator, or the one that follows from the model; None if there is none."""
        return plan_estimator(self.plan, about=self.about) if self.learned is None else self.learned

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data."""
        content = {**self.plan.to_dict(), "about": self.about}
        if self.learned is not None:
            content["estimator"] = self.learned.to_dict()
        if self.discretiser is not None:
            content["discretiser"] = self.discretiser.to_dict()
        if self.frontier is not None:
            content["frontier"] = self.frontier.to_dict()
        if self.until is not None:
            content["until"] = self.until
        return content

    def save(self, path: str | PathLike[str]) -> None:
        """Write the file; `load` reads it."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> PlanFile:
        """Read a plan file, as `csdp plan` and `csdp suggest` write it. Errors name the file."""
        file = Path(path)
        try:
            written = file.read_text(encoding="utf-8")
            plan = Plan.from_json(written)
            content: dict[str, Any] = parse_json("plan", written)
            learned, discretiser = content.get("estimator"), content.get("discretiser")
            frontier = content.get("frontier")
            return cls(
                plan,
                about=content.get("about", "now"),
                learned=None if learned is None else LearnedEstimator.from_dict(learned),
                discretiser=None if discretiser is None else Discretiser.from_dict(discretiser),
                frontier=None if frontier is None else Frontier.from_dict(frontier),
                until=content.get("until"),
            )
        except FileNotFoundError:
            raise InputError(f"{file}: no such file; `csdp plan` writes one with --output") from None
        except (OSError, UnicodeDecodeError):
            raise InputError(f"{file}: cannot be read as text in UTF-8; give a plan as `csdp plan` writes it") from None
        except InputError as error:
            raise type(error)(f"{file}: {error}") from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise InputError(f"{file}: not a plan as `csdp plan` writes it ({type(error).__name__})") from None


def end_of_past(until: str | int | None, times: npt.NDArray[Any], timezone: str | None) -> str | int | None:
    """The end of a public past as a plan file keeps it: in UTC, or the number of a tick.

    >>> import numpy as np
    >>> end_of_past("2024-07-01 08:00", np.array(["2024-07-01"], dtype="datetime64[s]"), "Europe/Berlin")
    '2024-07-01T06:00:00Z'
    """
    if until is None:
        return None
    try:
        return f"{read_moment(str(until), timezone)}Z" if times.dtype.kind == "M" else int(until)
    except ValueError:
        raise InputError(f"until: {until!r} given; a time of the kind that the readings have expected") from None


def _check_until(until: Any) -> None:
    if until is None or (isinstance(until, int) and not isinstance(until, bool)):
        return
    try:
        read_moment(text("until", until))
    except ValueError:
        raise InputError(
            f"until: {until!r} given; a time such as '2024-07-01T08:00:00Z' or a tick number is allowed"
        ) from None
