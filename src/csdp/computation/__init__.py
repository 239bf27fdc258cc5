"""What a query computes on one chain's values: read from it once, verified, and frozen.

Anyone can write a query. What is certified, charged and published must rest on one and the same computation, so
`verify_query` reads the parts of a query once, when a plan is made, and keeps them. Sensitivities, lattice, clipping,
answers and the fingerprint all follow from what was kept. What else the query states (answers,
sensitivity, names of outputs) must agree with its parts, or it is refused; its name decides nothing.
"""

from csdp.computation.computation import FoldComputation, FunctionComputation
from csdp.computation.readings import ReadingsComputation
from csdp.computation.verification import Computation, verify_query

__all__ = ["Computation", "FoldComputation", "FunctionComputation", "ReadingsComputation", "verify_query"]
