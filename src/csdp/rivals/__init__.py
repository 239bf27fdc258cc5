"""The other methods, behind one protocol: calibrate to their own guarantee, release, and what they leak in our sense.

Their outputs are for study. Nothing here reserves, charges or publishes: only a `csdp.Publisher` does.
"""

from csdp.errors import InputError
from csdp.rivals.budgets import TemporalBudgets, temporal_budgets
from csdp.rivals.dependent import BayesianDP, CorrelatedDP, DependentDP, ExactDependentDP, InferentialPrivacy
from csdp.rivals.fourier import Fourier
from csdp.rivals.pegasus import Pegasus
from csdp.rivals.plain import AgeDP, GroupDP, LaplaceDP
from csdp.rivals.protocol import Errors, Mechanism, Quantity, Rival, Trace
from csdp.rivals.pufferfish import ApproximateMarkovQuilt, MarkovQuilt, Wasserstein, markov_quilt_scale
from csdp.rivals.temporal import TemporalLeakage, temporal_leakage
from csdp.rivals.window import WindowAbsorption, WindowDistribution

__all__ = [
    "AgeDP",
    "ApproximateMarkovQuilt",
    "BayesianDP",
    "CorrelatedDP",
    "DependentDP",
    "Errors",
    "ExactDependentDP",
    "Fourier",
    "GroupDP",
    "InferentialPrivacy",
    "LaplaceDP",
    "MarkovQuilt",
    "Mechanism",
    "Pegasus",
    "Quantity",
    "Rival",
    "TemporalBudgets",
    "TemporalLeakage",
    "Trace",
    "Wasserstein",
    "WindowAbsorption",
    "WindowDistribution",
    "get",
    "markov_quilt_scale",
    "names",
    "temporal_budgets",
    "temporal_leakage",
]

_KINDS: tuple[type[Rival], ...] = (
    LaplaceDP,
    GroupDP,
    AgeDP,
    DependentDP,
    ExactDependentDP,
    CorrelatedDP,
    BayesianDP,
    InferentialPrivacy,
    Wasserstein,
    MarkovQuilt,
    ApproximateMarkovQuilt,
    TemporalBudgets,
    Fourier,
    WindowDistribution,
    WindowAbsorption,
    Pegasus,
)


def names() -> tuple[str, ...]:
    """Short names of all rivals.

    >>> names()[:3]
    ('laplace', 'group', 'adp')
    """
    return tuple(kind.name for kind in _KINDS)


def get(name: str) -> Rival:
    """The rival of that name, with its default settings; for others, make one: `csdp.rivals.Fourier(window=6)`.

    >>> get("laplace").guarantee
    'epsilon-DP of one record; nothing is said about what correlations give away'
    """
    for kind in _KINDS:
        if kind.name == name:
            return kind()
    raise InputError(f"rival: {name!r} given; use one of {', '.join(names())}")
