"""What no number of releases passes when all that was read is old enough: freshness, lineage, slice, influence."""

from __future__ import annotations

import math

from csdp.aging import Adversary
from csdp.bounds.closed_forms import PAIR_STATES, AgedPairs
from csdp.bounds.influence import Influence
from csdp.bounds.lineage import lineage
from csdp.bounds.slice.bound import slice_bound
from csdp.chain import Model, is_backward, is_forward

#: Steps over which the caps of a large component are followed; they do not grow after that.
CAP_STEPS = 64
#: Laws of the aged snapshot that are kept.
_KEPT = 48


class Caps:
    """The least cap of one component at every number of steps, each computed once."""

    def __init__(self, model: Model, adversary: Adversary) -> None:
        self._model, self._adversary = model, adversary
        self._found: dict[int, tuple[float, str]] = {}
        self._pairs: dict[int, AgedPairs] = {}

    def pairs(self, steps: int) -> AgedPairs:
        """The laws of the snapshot `steps` ago given presents that the adversary must not tell apart."""
        if steps not in self._pairs:
            if len(self._pairs) > _KEPT:
                self._pairs.clear()
            ages = [steps] * self._model.sequences
            self._pairs[steps] = AgedPairs(self._model, ages=ages, adversary=self._adversary)
        return self._pairs[steps]

    def at(self, steps: int) -> tuple[float, str]:
        """The cap `steps` after the newest reading, and the bound that gives it; infinite for a fresh reading."""
        if steps not in self._found:
            self._found[steps] = self._find(steps)
        return self._found[steps]

    def _find(self, steps: int) -> tuple[float, str]:
        model = self._model
        caps: list[tuple[float, str]] = [(math.inf, "none")]
        if steps == 0:
            return caps[0]
        if model.initial is None and model.size <= PAIR_STATES:
            caps.append((self.pairs(steps).log_ratio * (1 + 1e-13), "freshness"))
        if is_backward(model) and self._adversary == "informed":
            caps.append((float(Influence(model).cap(min(steps, CAP_STEPS)).max()), "influence"))
        if is_forward(model):
            lag = steps if self._adversary == "uninformed" else 1
            caps.append((float(lineage(model, lag).ranges.max()), "lineage"))
            if len(caps) < 3 and steps > 1:  # no freshness: slice decays with age for every adversary, and never grows
                caps.append((float(slice_bound(model, min(steps, CAP_STEPS)).ranges.max()), "slice"))
        return min(caps)
