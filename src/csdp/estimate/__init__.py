"""Estimates from what was published, and how far they are from the truth. Post-processing only."""

from csdp.estimate.error import mse
from csdp.estimate.history import HistoryEstimator, LinearEstimator, linear_estimator, model_estimator
from csdp.estimate.learned import LearnedEstimator, learn_estimator
from csdp.estimate.result import Error, Estimated, Estimator, Observation

__all__ = [
    "Error",
    "Estimated",
    "Estimator",
    "HistoryEstimator",
    "LearnedEstimator",
    "LinearEstimator",
    "Observation",
    "learn_estimator",
    "linear_estimator",
    "model_estimator",
    "mse",
]
