"""csdp.check_model: test a model on public readings, and let it carry the verdict.

The tests are those of `fit_quality` that speak about the model itself: order, homogeneity, movement within a step. The
counts of k-step transitions go with them, so that every plan can compare what it certifies at its own ages.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from csdp.chain import CoupledChain, Evidence, InfluenceFamily
from csdp.chain.evidence import count_lags
from csdp.errors import CsdpError
from csdp.fitting.environment_prediction import add_environments
from csdp.fitting.fit_checks import list_failures
from csdp.fitting.quality import run_checks
from csdp.fitting.sample import Chain, Sample, check_chain, match_chain, read_sample
from csdp.panel import Panel

#: False-alarm rate of each test, over all sequences.
LEVEL: Final = 0.001
#: Ticks below which the tests could hardly reject anything.
FEWEST_TICKS: Final = 100


def check_model(chain: Chain, past: Any, *, environment: Any = None) -> Chain:
    """Test a model on a public past; returns the same model, carrying the verdict.

    Publishing under a model that its past rejects is refused unless it is overridden, and every output shows the
    verdict. `csdp.fit` tests the models that it fits to public readings; use this for a declared model, or for one that
    an earlier version fitted.

    Args:
        chain: the model; its family, if it has one, stays with it.
        past: public readings: a panel, or state numbers. Never use private ones: the verdict reveals them.
        environment: the public series that the model follows, its number at every tick.

    >>> from csdp import CoupledChain
    >>> chain = CoupledChain([[1.0]], [[0.9, 0.1], [0.1, 0.9]])
    >>> check_model(chain, chain.simulate(2000, seed=1)).verdict.status
    'accepted'
    >>> check_model(chain, np.arange(2000)[:, None] // 3 % 2).verdict.status
    'rejected'
    """
    check_chain(chain)
    ticks = np.asarray(past.ticks) if isinstance(past, Panel) else None
    sample = match_chain(chain, read_sample(past, states=chain.states))
    evidence = find_evidence(chain, sample, ticks, environment)
    carried: dict[str, Any] = {"fitted": chain.fitted, "fit_cost": chain.fit_cost, "evidence": evidence}
    point = chain.carrying(**carried)
    family = chain.family
    if isinstance(family, InfluenceFamily):
        assert isinstance(point, CoupledChain)
        return chain.carrying(**carried, family=family.with_point(point))
    return point if family is None else chain.carrying(**carried, family=family.with_point(point))


def find_evidence(
    chain: Chain, sample: Sample, ticks: npt.NDArray[Any] | None = None, environment: Any = None
) -> Evidence:
    """What public readings show of a model.

    Args:
        chain: the model.
        sample: the readings, in natural order.
        ticks: their ticks; default 0, 1, 2, ...
        environment: the public series that the model follows.
    """
    length = sample.states.shape[0]
    if length < FEWEST_TICKS:
        return Evidence("untested", f"{length} ticks are too few to test a model; {FEWEST_TICKS} are needed")
    ticks = np.arange(length) if ticks is None else ticks
    try:
        known = add_environments(chain, sample, ticks, environment)
        checks, _ = run_checks(chain, known, None, LEVEL, lambda *_: None)
    except CsdpError as error:
        return Evidence("untested", str(error))
    failures = [found for found, _ in list_failures(chain, checks)]
    sequences, counts = count_lags(sample.states, chain.states)
    return Evidence("rejected" if failures else "accepted", "; ".join(failures), sequences, counts)
