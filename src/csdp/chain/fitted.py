"""FitRecord: how a chain was fitted, told with the chain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from csdp.errors import InputError


@dataclass(frozen=True)
class FitRecord:
    """How a chain was fitted: what was asked for, what came out, and what to beware of.

    `observations` counts the transitions that were used, over all sequences; `log_likelihood` is theirs under the
    chain (None where only noised counts were seen). `path` is the objective after each iteration, summed over the
    sequences: the log-likelihood plus the smoothing's share, which EM never lowers. `neighbours` is the largest
    number of other sequences that one may follow, `screened` whether they were chosen from the data. `parameters`
    counts the free numbers of the model. `held_out` are the log-likelihoods per tick of both directions of time on
    readings that were set aside, where the data chose between them. A record of a private fit holds nothing but what
    the noised counts gave.

    >>> FitRecord(method="em", observations=99, path=(-70.0, -66.5), iterations=2).monotone
    True
    """

    method: str
    observations: int
    log_likelihood: float | None = None
    path: tuple[float, ...] = ()
    iterations: int = 0
    converged: bool = True
    restarts: int = 1
    smoothing: float = 0.0
    neighbours: int = 0
    screened: bool = False
    parameters: int = 0
    states: int = 0
    epsilon: float | None = None
    public: bool = False
    ensemble: int = 0
    ensemble_method: str | None = None
    seed: int = 0
    warnings: tuple[str, ...] = ()
    direction: str = "forward"
    held_out: tuple[tuple[str, float], ...] = ()

    @property
    def monotone(self) -> bool:
        """Whether no iteration lowered the objective (beyond the rounding of its sum)."""
        return all(b >= a - 1e-11 * max(1.0, abs(a)) for a, b in zip(self.path, self.path[1:], strict=False))

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, for JSON."""
        content = asdict(self)
        content["path"], content["warnings"] = list(self.path), list(self.warnings)
        content["held_out"] = [list(pair) for pair in self.held_out]
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> FitRecord:
        """Rebuild from `to_dict`; what it does not know is refused."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(content) - known)
        if unknown or not {"method", "observations"} <= set(content):
            told = f"unknown {unknown[0]!r}" if unknown else "no method or observations"
            raise InputError(f"chain: the record of its fit is garbled ({told}); write it with to_json")
        given = dict(content)
        given["path"] = tuple(_number(value) for value in given.get("path", ()))
        given["held_out"] = tuple((str(name), _number(value)) for name, value in given.get("held_out", ()))
        given["warnings"] = tuple(str(text) for text in given.get("warnings", ()))
        return cls(**given)


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise InputError("chain: the record of its fit holds a number that is not finite")
    return number
