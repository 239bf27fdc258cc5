"""How far a release is from the present: error of raw releases, of the linear estimate, and of the filter."""

from csdp.utility.bayes import BayesFilter, FilterState
from csdp.utility.error import Error, mse
from csdp.utility.second_order import Moments, moments

__all__ = ["BayesFilter", "Error", "FilterState", "Moments", "moments", "mse"]
