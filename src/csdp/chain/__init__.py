"""Models of correlated sequences: coupled chains, joint chains, and families of them."""

from csdp.chain.coupled import CoupledChain
from csdp.chain.family import Family
from csdp.chain.joint import JointChain
from csdp.chain.model import Model

__all__ = ["CoupledChain", "Family", "JointChain", "Model"]
