"""Other published methods behind one protocol: calibrate to their own guarantee, release, and compute CSDP leakage.

Their outputs are for study. Nothing here reserves, charges or publishes: only a `csdp.Publisher` does.
"""

from csdp.errors import InputError
from study.baselines.dependent import BayesianDP, CorrelatedDP, DependentDP, ExactDependentDP, InferentialPrivacy
from study.baselines.laplace import AgeDP, GroupDP, LaplaceDP, TemporalBudgets
from study.baselines.protocol import Baseline, Errors, Mechanism, Quantity, Trace
from study.baselines.pufferfish import ApproximateMarkovQuilt, MarkovQuilt, Wasserstein, markov_quilt_scale
from study.baselines.streams import Pegasus, WindowAbsorption, WindowDistribution
from study.baselines.temporal import TemporalLeakage, temporal_budgets, temporal_leakage
from study.baselines.windows import BinaryTree, Fourier, GradualExpiration, HaarWavelet, ToeplitzNoise

__all__ = [
    "AgeDP",
    "ApproximateMarkovQuilt",
    "Baseline",
    "BayesianDP",
    "BinaryTree",
    "CorrelatedDP",
    "DependentDP",
    "Errors",
    "ExactDependentDP",
    "Fourier",
    "GradualExpiration",
    "GroupDP",
    "HaarWavelet",
    "InferentialPrivacy",
    "LaplaceDP",
    "MarkovQuilt",
    "Mechanism",
    "Pegasus",
    "Quantity",
    "TemporalBudgets",
    "TemporalLeakage",
    "ToeplitzNoise",
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

_KINDS: tuple[type[Baseline], ...] = (
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
    HaarWavelet,
    BinaryTree,
    ToeplitzNoise,
    GradualExpiration,
    WindowDistribution,
    WindowAbsorption,
    Pegasus,
)


def names() -> tuple[str, ...]:
    """Return the short names of all baselines.

    >>> names()[:3]
    ('laplace', 'group', 'adp')
    """
    return tuple(kind.name for kind in _KINDS)


def get(name: str) -> Baseline:
    """Return the baseline of a name with default settings; for others, make one: `study.baselines.Fourier(window=6)`.

    >>> get("laplace").guarantee
    'epsilon-DP of one record; no inferential guarantee'
    """
    for kind in _KINDS:
        if kind.name == name:
            return kind()
    raise InputError(f"baseline: {name!r} given; use one of {', '.join(names())}")
