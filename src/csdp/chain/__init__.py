"""Models of correlated sequences: coupled chains, joint chains, and families of them."""

from csdp.chain.coupled import CoupledChain, is_backward, is_forward
from csdp.chain.family import Family, certified_model
from csdp.chain.fitted import FitRecord
from csdp.chain.joint import JointChain
from csdp.chain.model import Model
from csdp.chain.private import fits_epsilon, join_fits, private_fits, recorded_fits

__all__ = [
    "CoupledChain",
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
