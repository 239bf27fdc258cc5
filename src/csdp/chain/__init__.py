"""Models of correlated sequences: coupled chains, joint chains, environment chains, and families of them."""

from csdp.chain.coupled import CoupledChain, is_backward
from csdp.chain.environment import EnvironmentChain
from csdp.chain.evidence import Evidence, FitRecord, Verdict, worst_verdict
from csdp.chain.family import Family, certified_model
from csdp.chain.files import UNPAID_FIT, fits_epsilon, join_fits, private_fits, recorded_fits
from csdp.chain.graph import InfluenceGraph, is_graph
from csdp.chain.joint import JointChain
from csdp.chain.model import Model
from csdp.chain.no_model import NoModel

__all__ = [
    "UNPAID_FIT",
    "CoupledChain",
    "EnvironmentChain",
    "Evidence",
    "Family",
    "FitRecord",
    "InfluenceGraph",
    "JointChain",
    "Model",
    "NoModel",
    "Verdict",
    "certified_model",
    "fits_epsilon",
    "is_backward",
    "is_graph",
    "join_fits",
    "private_fits",
    "recorded_fits",
    "worst_verdict",
]
