"""Other published methods: calibrate to their own guarantee, and compute or bound their CSDP leakage.

They are for study and release nothing: only a `csdp.Publisher` does.
"""

from study.baselines.dependent import BayesianDP, CorrelatedDP, DependentDP, ExactDependentDP, InferentialPrivacy
from study.baselines.laplace import AgeDP, GroupDP, LaplaceDP, TemporalBudgets
from study.baselines.pufferfish import ApproximateMarkovQuilt, MarkovQuilt, Wasserstein, markov_quilt_scale
from study.baselines.streams import Pegasus, WindowAbsorption, WindowDistribution
from study.baselines.temporal import temporal_leakage
from study.baselines.windows import BinaryTree, Fourier, GradualExpiration, HaarWavelet, ToeplitzNoise

__all__ = [
    "AgeDP",
    "ApproximateMarkovQuilt",
    "BayesianDP",
    "BinaryTree",
    "CorrelatedDP",
    "DependentDP",
    "ExactDependentDP",
    "Fourier",
    "GradualExpiration",
    "GroupDP",
    "HaarWavelet",
    "InferentialPrivacy",
    "LaplaceDP",
    "MarkovQuilt",
    "Pegasus",
    "TemporalBudgets",
    "ToeplitzNoise",
    "Wasserstein",
    "WindowAbsorption",
    "WindowDistribution",
    "markov_quilt_scale",
    "temporal_leakage",
]
