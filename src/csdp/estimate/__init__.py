"""How far a release is from the present: error of raw releases, of the linear estimate, and of the filter."""

from csdp.estimate.error import BayesFilter, Error, FilterState, mse
from csdp.estimate.second_order import Moments, moments

__all__ = ["BayesFilter", "Error", "FilterState", "Moments", "moments", "mse"]
