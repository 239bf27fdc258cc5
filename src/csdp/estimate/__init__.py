"""Estimates from what was published, and how far they are from the truth. Post-processing only."""

from csdp.estimate.error import BayesFilter, FilterState, mse
from csdp.estimate.history import HistoryEstimator, model_estimator
from csdp.estimate.learned import LearnedEstimator, learn_estimator
from csdp.estimate.protocol import Estimated, Estimator, Observation
from csdp.estimate.result import Error
from csdp.estimate.second_order import Moments, moments
from csdp.estimate.single import LinearEstimator, linear_estimator

__all__ = [
    "BayesFilter",
    "Error",
    "Estimated",
    "Estimator",
    "FilterState",
    "HistoryEstimator",
    "LearnedEstimator",
    "LinearEstimator",
    "Moments",
    "Observation",
    "learn_estimator",
    "linear_estimator",
    "model_estimator",
    "moments",
    "mse",
]
