"""Laws that several baselines look at: of whole snapshots, of pairs of records, of a record and its own past."""

from __future__ import annotations

import itertools
from contextlib import suppress
from functools import lru_cache

import numpy as np

from csdp.baselines.protocol import Floats
from csdp.chain import CoupledChain, Model
from csdp.errors import CsdpError, TooLargeError
from csdp.estimate.second_order import pair_laws

#: Joint states up to which a law of whole snapshots is made.
LAW_STATES = 4096
#: Sequences times states up to which all pairs of records are looked at.
PAIR_SIZE = 512


def present_law(chain: Model) -> Floats:
    """The stationary law of the snapshot, (m**s,), for small chains."""
    if chain.size > LAW_STATES:
        raise TooLargeError(
            f"{chain.states}**{chain.sequences} joint states; at most {LAW_STATES:,} for this baseline",
            needed=float(min(chain.size, 10**300)),
            limit=LAW_STATES,
        )
    return chain.stationary()


@lru_cache(maxsize=16)
def record_pairs(chain: Model) -> Floats:
    """Pr(x_i = a, x_j = b) of the present, (s, m, s, m)."""
    s, m = chain.sequences, chain.states
    if s * m > PAIR_SIZE:
        raise TooLargeError(
            f"{s} sequences of {m} states: all pairs of records are looked at for up to {PAIR_SIZE} of both together",
            needed=float(s * m),
            limit=PAIR_SIZE,
        )
    if isinstance(chain, CoupledChain):
        with suppress(CsdpError):  # pair laws of a chain that hardly mixes may not settle; the joint law is solved for
            return pair_laws(chain).reshape(s, m, s, m)
    joint = present_law(chain).reshape((m,) * s)
    out = np.zeros((s, m, s, m))
    for i, j in itertools.product(range(s), repeat=2):
        away = tuple(k for k in range(s) if k not in {i, j})
        both = joint.sum(axis=away)
        out[i, :, j, :] = np.diag(both) if i == j else both if i < j else both.T
    return out


def own_pairs(chain: Model, age: int) -> Floats:
    """Pr(present state is a, state `age` steps ago was c) of every sequence, (s, m, m)."""
    s, m = chain.sequences, chain.states
    if isinstance(chain, CoupledChain) and s * m <= LAW_STATES:
        with suppress(CsdpError):  # as above
            pairs, q = pair_laws(chain), chain.q_matrix()
            for _ in range(age):
                pairs = np.asarray(q @ pairs)
            if chain.direction == "backward":  # the chain led from the present to the old state
                pairs = pairs.T
            cube = pairs.reshape(s, m, s, m)
            return np.asarray(cube[np.arange(s), :, np.arange(s), :])
    law = present_law(chain)
    power = np.linalg.matrix_power(chain.kernel(), age)
    digits = np.array(np.unravel_index(np.arange(chain.size), (m,) * s))
    out = np.zeros((s, m, m))
    joint = law[:, None] * power  # [old, new]
    for i, c, a in itertools.product(range(s), range(m), range(m)):
        out[i, a, c] = joint[np.ix_(digits[i] == c, digits[i] == a)].sum()
    return out


@lru_cache(maxsize=64)
def own_variation(chain: Model, age: int) -> float:
    """The largest total variation, over sequences, of its own state `age` steps ago given two present states."""
    worst = 0.0
    for joint in own_pairs(chain, age):
        law = joint.sum(axis=1)
        rows = joint[law > 0] / law[law > 0, None]
        for row in rows:
            worst = max(worst, float(np.abs(rows - row).sum(axis=1).max()) / 2)
    return min(1.0, worst)
