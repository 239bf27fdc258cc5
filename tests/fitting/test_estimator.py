"""The estimator keeps scikit-learn's habits, and csdp does not need scikit-learn."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pytest

import csdp
from csdp.errors import InputError
from fitting.systems import plain_log_likelihood, random_chain

STATES = random_chain(1, 3, 2).simulate(600, seed=1)


def test_it_fits_as_the_function_does():
    settings = {"public": True, "ensemble": 2, "smoothing": 0.2, "seed": 3}
    assert csdp.CoupledChainEstimator(**settings).fit(STATES).chain_ == csdp.fit(STATES, **settings)


def test_it_has_the_parameters_of_the_function():
    ours = inspect.signature(csdp.CoupledChainEstimator).parameters
    theirs = inspect.signature(csdp.fit).parameters
    assert set(theirs) - set(ours) == {"data", "progress"}
    assert all(ours[name].default == theirs[name].default for name in ours)


def test_parameters_are_read_and_set():
    estimator = csdp.CoupledChainEstimator(smoothing=0.1)
    assert estimator.get_params()["smoothing"] == 0.1
    assert estimator.set_params(smoothing=0.3, seed=2) is estimator
    assert (estimator.smoothing, estimator.seed) == (0.3, 2)
    assert repr(estimator) == "CoupledChainEstimator(smoothing=0.3, seed=2)"
    with pytest.raises(InputError, match="no parameter 'colour'"):
        estimator.set_params(colour="red")


def test_scikit_learn_clones_it():
    from sklearn.base import clone

    first = csdp.CoupledChainEstimator(public=True, ensemble=0, neighbours=1).fit(STATES)
    second = clone(first)
    assert second.get_params() == first.get_params()
    assert not hasattr(second, "chain_")
    assert second.fit(STATES).chain_ == first.chain_


def test_scikit_learn_searches_over_it():
    from sklearn.model_selection import GridSearchCV, TimeSeriesSplit

    search = GridSearchCV(
        csdp.CoupledChainEstimator(public=True, ensemble=0, states=2),
        {"smoothing": [0.5, 500.0]},
        cv=TimeSeriesSplit(3),
        error_score="raise",
    )
    search.fit(STATES)
    assert search.best_params_ == {"smoothing": 0.5}
    assert search.best_estimator_.chain_.sequences == 3


def test_a_pipeline_ends_with_it():
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    steps = make_pipeline(
        FunctionTransformer(lambda x: (x > 0).astype(int)), csdp.CoupledChainEstimator(public=True, ensemble=0)
    )
    steps.fit(STATES - 0.5)
    assert np.isfinite(steps.score(STATES - 0.5))


def test_the_score_is_the_mean_log_likelihood():
    estimator = csdp.CoupledChainEstimator(public=True, ensemble=0).fit(STATES)
    expected = plain_log_likelihood(estimator.chain_, STATES) / (3 * 599)
    assert estimator.score(STATES) == pytest.approx(expected, rel=1e-10)
    assert estimator.n_features_in_ == 3


def test_nothing_to_score():
    with pytest.raises(InputError, match="fit"):
        csdp.CoupledChainEstimator().score(STATES)


def test_scikit_learn_is_not_loaded():
    code = (
        "import csdp, sys, numpy as np\n"
        "csdp.CoupledChainEstimator(public=True, ensemble=0).fit(np.tile([[0, 1], [1, 0], [0, 0]], (20, 1)))\n"
        "print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
