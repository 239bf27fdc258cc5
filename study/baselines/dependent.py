"""Baselines for records that depend on each other within a snapshot: DDP, correlated DP, Bayesian DP, inferential."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from csdp.bounds.exact import output_grid
from csdp.bounds.result import round_up
from csdp.chain import Model
from csdp.errors import InputError
from csdp.numbers import Floats
from csdp.query import tabulate
from csdp.query_table import FoldTable, Query
from study.baselines.laplace import (
    LaplaceBaseline,
    exact_leakage,
    present_law,
    record_pairs,
    safe_log,
)


def record_sensitivities(chain: Model, query: Query) -> Floats:
    """Return Delta_j, the sensitivity of the answer to record j alone, (s,)."""
    table = chain.value_table
    return np.array([query.sensitivity(1, table, members=[j]) for j in range(chain.sequences)])


def pair_losses(chain: Model, query: Query, scale: float) -> Floats:
    """Return L_ij, the largest log ratio of the Laplace mixture that x_j's law given x_i induces, (s, s).

    Liu's coefficient is `rho_ij = L_ij scale / Delta_j`.
    """
    query = tabulate(query, chain)
    if not isinstance(query, FoldTable):
        raise InputError(
            f"ddp: {query.name} is no sum, maximum or minimum over records, so it has no dependence coefficients"
        )
    table = chain.value_table
    s = table.shape[0]
    pairs = record_pairs(chain)
    own = np.einsum("iaia->ia", pairs)
    with np.errstate(divide="ignore", invalid="ignore"):
        conditional = safe_log(pairs / own[:, :, None, None])  # ln Pr(x_j = c | x_i = a)
    contributions = query.contributions() / query.denominator
    out = np.zeros((s, s))
    for j in range(s):
        outputs = output_grid(contributions[j])
        far = -np.abs(outputs[:, None, :] - contributions[j][None]).sum(axis=2) / scale  # (y, c)
        terms = conditional[:, :, j, None, :] + far  # (i, a, y, c)
        density = np.logaddexp.reduce(terms, axis=3)
        density[own <= 0] = np.nan
        out[:, j] = (np.fmax.reduce(density, axis=1) - np.fmin.reduce(density, axis=1)).max(axis=1)
    return out


@dataclass(frozen=True)
class DependentDP(LaplaceBaseline):
    """Dependent DP by pairwise coefficients (Liu, Chakraborty and Mittal 2016)."""

    name: ClassVar[str] = "ddp-liu"
    title: ClassVar[str] = "Dependent DP, pairwise (Liu et al. 2016)"
    guarantee: ClassVar[str] = (
        "meant as epsilon-DDP, but pairwise coefficients are NO guarantee: three records with x3 = x1 xor x2 have "
        "all coefficients 0"
    )

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """max_i sum_j rho_ij Delta_j / scale, which is max_i sum_j L_ij."""
        losses = pair_losses(chain, query, scale)
        np.fill_diagonal(losses, record_sensitivities(chain, query) / scale)
        return float(losses.sum(axis=1).max())


@dataclass(frozen=True)
class ExactDependentDP(LaplaceBaseline):
    """Dependent DP by its definition, enumerated (as in Zhao, Zhang and Poor 2017), for small systems."""

    name: ClassVar[str] = "ddp-exact"
    title: ClassVar[str] = "Dependent DP, exact (Zhao et al. 2017)"
    guarantee: ClassVar[str] = (
        "one record's value changes the law of the output by at most epsilon, its dependants moving with it"
    )

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """The exact leakage against an adversary who knows the model only."""
        level = query.sensitivity(1, chain.value_table) / scale
        return exact_leakage("uninformed", chain, query, age=self.age, epsilon_c=level)


@dataclass(frozen=True)
class BayesianDP(LaplaceBaseline):
    """Bayesian DP (Yang, Sato and Nakagawa 2015): the adversary knows any subset of the other records."""

    name: ClassVar[str] = "bayesian"
    title: ClassVar[str] = "Bayesian DP (Yang et al. 2015)"
    guarantee: ClassVar[str] = (
        "one record's value changes the law of the output by at most epsilon, whichever other records are known"
    )

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """The exact leakage, worst over every set of other records that the adversary knows."""
        level = query.sensitivity(1, chain.value_table) / scale
        return exact_leakage("any", chain, query, age=self.age, epsilon_c=level)


@dataclass(frozen=True)
class CorrelatedDP(LaplaceBaseline):
    """Correlated DP (Zhu, Xiong, Li and Zhou 2015): sensitivity weighted by Pearson correlations."""

    name: ClassVar[str] = "correlated"
    title: ClassVar[str] = "Correlated DP (Zhu et al. 2015)"
    guarantee: ClassVar[str] = (
        "noise for a correlated sensitivity; NO inferential guarantee: zero correlation is not independence"
    )

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """max_i sum_j |Pearson_ij| Delta_j / scale."""
        pearson = np.abs(correlations(chain))
        np.fill_diagonal(pearson, 1.0)
        return float((pearson @ record_sensitivities(chain, query)).max() / scale)


def correlations(chain: Model) -> Floats:
    """Return Pearson correlations of the present values, (s, s); 0 where a value never changes."""
    table, pairs = chain.value_table, record_pairs(chain)
    own = np.einsum("iaia->ia", pairs)
    centred = table - (own * table).sum(axis=1, keepdims=True)
    cov = np.einsum("ia,iajb,jb->ij", centred, pairs, centred)
    spread = np.sqrt(np.maximum(np.diag(cov), 0.0))
    scale = np.multiply.outer(spread, spread)
    out = np.divide(cov, scale, out=np.zeros_like(cov), where=scale > 0)
    np.fill_diagonal(out, 1.0)
    return np.asarray(np.clip(out, -1.0, 1.0))


@dataclass(frozen=True)
class InferentialPrivacy(LaplaceBaseline):
    """Inferential privacy (Ghosh and Kleinberg 2017): nu = 2 (I - Gamma)^-1 epsilon, Gamma the influences."""

    name: ClassVar[str] = "inferential"
    title: ClassVar[str] = "Inferential privacy (Ghosh and Kleinberg 2017)"
    guarantee: ClassVar[str] = (
        "the odds of any two values of a record move by at most e^epsilon, for weak influences (norm of Gamma below 1)"
    )

    def nominal(self, chain: Model, query: Query, scale: float) -> float:
        """max_i 2 sum_j ((I - Gamma)^-1)_ij Delta_j / scale."""
        gamma = influences(chain)
        norm = float(np.linalg.norm(gamma, 2)) if np.isfinite(gamma).all() else float("inf")
        if not norm < 1:
            raise InputError(
                f"inferential: the influence matrix has norm {norm:.4g}; the theorem needs it below 1. "
                "Records depend on each other too strongly for this baseline"
            )
        spread = np.linalg.inv(np.eye(len(gamma)) - gamma)
        return round_up(float((2.0 * spread @ record_sensitivities(chain, query)).max() / scale))


@lru_cache(maxsize=16)
def influences(chain: Model) -> Floats:
    """Return Gamma_ij: half the largest log ratio of x_i's law given all others when x_j changes, (s, s)."""
    s, m = chain.sequences, chain.states
    joint = safe_log(present_law(chain)).reshape((m,) * s)
    gamma = np.zeros((s, s))
    for i in range(s):
        conditional = joint - np.logaddexp.reduce(joint, axis=i, keepdims=True)  # ln Pr(x_i | others)
        for j in range(s):
            if i == j:
                continue
            with np.errstate(invalid="ignore"):
                spread = conditional.max(axis=j) - conditional.min(axis=j)
            gamma[i, j] = 0.5 * float(np.nan_to_num(spread, nan=np.inf, posinf=np.inf).max())
    return gamma
