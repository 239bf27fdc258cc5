"""Models of correlated sequences: coupled chains, joint chains, environment chains, and families of them."""

from csdp.chain.coupled import CoupledChain, is_backward, is_forward
from csdp.chain.environment import EnvironmentChain
from csdp.chain.evidence import Evidence, Verdict, worst_verdict
from csdp.chain.family import (
    UNPAID_FIT,
    Family,
    FitRecord,
    certified_model,
    fits_epsilon,
    join_fits,
    private_fits,
    recorded_fits,
)
from csdp.chain.influence_family import InfluenceFamily, is_influence_family
from csdp.chain.joint import JointChain
from csdp.chain.model import Model

__all__ = [
    "UNPAID_FIT",
    "CoupledChain",
    "EnvironmentChain",
    "Evidence",
    "Family",
    "FitRecord",
    "InfluenceFamily",
    "JointChain",
    "Model",
    "Verdict",
    "certified_model",
    "fits_epsilon",
    "is_backward",
    "is_forward",
    "is_influence_family",
    "join_fits",
    "private_fits",
    "recorded_fits",
    "worst_verdict",
]
