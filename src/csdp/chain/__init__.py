"""Models of correlated sequences: coupled chains, joint chains, environment chains, and families of them."""

from csdp.chain.coupled import CoupledChain, is_backward, is_forward
from csdp.chain.environment import EnvironmentChain
from csdp.chain.family import Family, FitRecord, certified_model, fits_epsilon, join_fits, private_fits, recorded_fits
from csdp.chain.joint import JointChain
from csdp.chain.model import Model

__all__ = [
    "CoupledChain",
    "EnvironmentChain",
    "Family",
    "FitRecord",
    "JointChain",
    "Model",
    "certified_model",
    "fits_epsilon",
    "is_backward",
    "is_forward",
    "join_fits",
    "private_fits",
    "recorded_fits",
]
