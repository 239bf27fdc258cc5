"""`csdp.fit` with the interface of scikit-learn."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np

from csdp.chain import CoupledChain, EnvironmentChain, JointChain
from csdp.errors import InputError
from csdp.fitting.fit import fit
from csdp.fitting.pairs import Neighbours
from csdp.fitting.sample import Prediction, match_chain, read_sample
from csdp.fitting.scores import score_environments


class CoupledChainEstimator:
    """`csdp.fit` with the interface of scikit-learn, without needing it: `fit(X)` leaves the chain in `chain_`.

    Parameters are those of `csdp.fit`.

    Works with `sklearn.base.clone`, pipelines and searches over parameters. `score(X)` is the mean log-likelihood of a
    transition under `chain_`.

    >>> from csdp import CoupledChain
    >>> states = CoupledChain([[1.0]], [[0.9, 0.1], [0.2, 0.8]]).simulate(3000, seed=1)
    >>> CoupledChainEstimator(public=True, ensemble=0).fit(states).chain_.marginals().round(1).tolist()
    [[0.7, 0.3]]
    """

    chain_: CoupledChain | JointChain | EnvironmentChain
    n_features_in_: int

    def __init__(
        self,
        *,
        method: Literal["em", "ching", "counts", "moments", "joint"] = "em",
        states: int | None = None,
        neighbours: Neighbours = None,
        smoothing: float = 0.5,
        public: bool = False,
        epsilon: float | None = None,
        restarts: int = 1,
        max_iterations: int = 2000,
        tolerance: float = 1e-8,
        ensemble: int = 20,
        ensemble_method: Literal["auto", "bootstrap", "posterior", "limits"] = "auto",
        confidence: float = 0.95,
        seed: int = 0,
        direction: Literal["forward", "backward", "auto"] = "forward",
        environment: Any = None,
        cycle: int | Sequence[int] | None = None,
        environments: int | None = None,
        shrinkage: float | None = None,
        kernel: Literal["free", "ordinal"] = "free",
    ) -> None:
        self.method = method
        self.states = states
        self.neighbours = neighbours
        self.smoothing = smoothing
        self.public = public
        self.epsilon = epsilon
        self.restarts = restarts
        self.max_iterations = max_iterations
        self.tolerance = tolerance
        self.ensemble = ensemble
        self.ensemble_method = ensemble_method
        self.confidence = confidence
        self.seed = seed
        self.direction = direction
        self.environment = environment
        self.cycle = cycle
        self.environments = environments
        self.shrinkage = shrinkage
        self.kernel = kernel

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; `deep` is there for scikit-learn and changes nothing."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name, as scikit-learn's searches do."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise InputError(f"set_params: no parameter {name!r}; there are {', '.join(known)}")
            setattr(self, name, value)
        return self

    def fit(self, X: Any, y: None = None) -> Self:
        """Fit a chain on X (a Panel, an array or a dataframe of states); y is there for scikit-learn."""
        self.chain_ = fit(X, **self.get_params())
        self.n_features_in_ = self.chain_.sequences
        return self

    def score(self, X: Any, y: None = None) -> float:
        """Mean log-likelihood of a transition of X under the fitted chain."""
        if not hasattr(self, "chain_"):
            raise InputError("score: nothing is fitted yet; call fit(X) first")
        readings = match_chain(self.chain_, read_sample(X, states=self.chain_.states))
        if isinstance(self.chain_, EnvironmentChain):
            total, known = score_environments(self.chain_, readings, X)
        else:
            prediction = Prediction(self.chain_, readings)
            parts = [prediction.scores(j) for j in range(self.chain_.sequences)]
            total, known = float(np.sum([score.sum() for score, _ in parts])), sum(int(k.sum()) for _, k in parts)
        if not known:
            raise InputError("score: no transition was read at both ends")
        return total / known

    def __sklearn_tags__(self) -> Any:
        """The tags of the estimator; called by scikit-learn only."""
        from importlib import import_module

        kinds = import_module("sklearn.utils")
        return kinds.Tags(
            estimator_type=None,
            target_tags=kinds.TargetTags(required=False),
            input_tags=kinds.InputTags(categorical=True),
        )

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        changed = [f"{name}={value!r}" for name, value in self.get_params().items() if value is not defaults[name]]
        return f"CoupledChainEstimator({', '.join(changed)})"
