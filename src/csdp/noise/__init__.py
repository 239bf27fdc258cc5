"""Noise for releases: the only place where randomness is drawn for one.

Floating-point Laplace noise leaks through its low bits (Mironov 2012), so values stay on a lattice of step g
and the noise is an integer number of steps, two-sided geometric, drawn exactly: no rounding, no cut-off, no
delta.
"""

from csdp.noise.geometric import ENDLESS, prepare_draws, two_sided_geometric, variance
from csdp.noise.randomness import Randomness

__all__ = ["ENDLESS", "Randomness", "prepare_draws", "two_sided_geometric", "variance"]
