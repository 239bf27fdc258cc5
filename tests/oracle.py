"""Brute-force oracle: slow, plain code for tiny systems. Independent of the library; imports nothing of it.

Snapshots are numbered in the order of ``itertools.product(range(m), repeat=s)``. A bound takes a matrix of
rows (conditional laws of the aged snapshot) and the pairs of rows to compare; `adversary_rows` gives both.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise, permutations, product

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]
Snapshot = tuple[int, ...]
Pairs = Sequence[tuple[int, int]]
Values = Sequence[tuple[float, ...]]


def snapshots(s: int, m: int) -> list[Snapshot]:
    """All m^s snapshots in their fixed order."""
    return list(product(range(m), repeat=s))


def safe_log(p: ArrayLike) -> Array:
    """Natural logarithm with ln 0 = -inf and no warning."""
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(p, dtype=float))


# ---------------------------------------------------------------- the chain


def joint_kernel(coupling: ArrayLike, transitions: ArrayLike) -> Array:
    """K[x, y] = Pr(next = y | present = x); independent picks. One m x m matrix serves all pairs."""
    lam = np.asarray(coupling, dtype=float)
    s = len(lam)
    t = np.asarray(transitions, dtype=float)
    t = np.broadcast_to(t, (s, s, *t.shape[-2:]))
    snaps = snapshots(s, t.shape[-1])
    kernel = np.empty((len(snaps), len(snaps)))
    for row, x in enumerate(snaps):
        for col, y in enumerate(snaps):
            prob = 1.0
            for j in range(s):
                prob *= sum(lam[j, k] * t[j, k, x[k], y[j]] for k in range(s))
            kernel[row, col] = prob
    return kernel


def recurrent_states(kernel: ArrayLike) -> list[int]:
    """The one closed class of communicating states; an error where there are several."""
    k = np.asarray(kernel, dtype=float)
    reach = np.eye(len(k), dtype=bool) | (k > 0)
    for mid in range(len(k)):
        reach |= np.outer(reach[:, mid], reach[mid])
    closed = [x for x in range(len(k)) if all(reach[y, x] for y in np.flatnonzero(reach[x]))]
    if not all(reach[x, y] for x in closed for y in closed):
        raise ValueError("several stationary laws")
    return closed


def stationary(kernel: ArrayLike) -> Array:
    """The stationary law by state elimination without subtractions; transient states get an exact 0."""
    k = np.asarray(kernel, dtype=float)
    keep = recurrent_states(k)
    work = k[np.ix_(keep, keep)].copy()
    for n in range(len(keep) - 1, 0, -1):
        work[:n, n] /= work[n, :n].sum()
        work[:n, :n] += np.outer(work[:n, n], work[n, :n])
    weight = np.ones(len(keep))
    for n in range(1, len(keep)):
        weight[n] = weight[:n] @ work[:n, n]
    law = np.zeros(len(k))
    law[keep] = weight / weight.sum()
    return law


# ---------------------------------------------------------------- the aged snapshot


def normalise_rows(joint: Array) -> tuple[Array, Array]:
    """(B, law of x) from joint[x, z]; rows of impossible x are NaN."""
    law = joint.sum(axis=1)
    out = np.full_like(joint, np.nan)
    out[law > 0] = joint[law > 0] / law[law > 0, None]
    return out, law


def aged_law(
    kernel: ArrayLike, s: int, m: int, ages: Sequence[int], initial: ArrayLike | None = None
) -> tuple[Array, Array]:
    """B[x, z] = Pr(z | x_t = x) and the law at t; a table of collected coordinates walks forward in time."""
    k = np.asarray(kernel, dtype=float)
    snaps = snapshots(s, m)
    start = stationary(k) if initial is None else np.asarray(initial, dtype=float)
    table: dict[tuple[int | None, ...], Array] = {(None,) * s: start}
    for age in range(max(ages), -1, -1):  # the time is t - age
        grown: dict[tuple[int | None, ...], Array] = {}
        for collected, weights in table.items():
            for index, x in enumerate(snaps):
                key = tuple(x[i] if ages[i] == age else collected[i] for i in range(s))
                grown.setdefault(key, np.zeros(len(k)))[index] += weights[index]
        table = grown if age == 0 else {key: weights @ k for key, weights in grown.items()}
    joint = np.zeros((len(k), len(k)))
    for z, weights in table.items():
        joint[:, snaps.index(z)] += weights  # type: ignore[arg-type, index]
    return normalise_rows(joint)


def aged_law_paths(
    kernel: ArrayLike, s: int, m: int, ages: Sequence[int], initial: ArrayLike | None = None
) -> tuple[Array, Array]:
    """The same as `aged_law`, by enumeration of every path from t - max(ages) to t."""
    k = np.asarray(kernel, dtype=float)
    snaps = snapshots(s, m)
    start = stationary(k) if initial is None else np.asarray(initial, dtype=float)
    joint = np.zeros((len(k), len(k)))
    for path in product(range(len(k)), repeat=max(ages) + 1):
        prob = start[path[0]]
        for here, there in pairwise(path):
            prob *= k[here, there]
        z = tuple(snaps[path[-1 - ages[i]]][i] for i in range(s))
        joint[path[-1], snaps.index(z)] += prob
    return normalise_rows(joint)


# ---------------------------------------------------------------- queries


def query_values(
    name: str,
    s: int,
    m: int,
    values: Sequence[float],
    weights: Sequence[float] | None = None,
    state: int | None = None,
) -> list[tuple[float, ...]]:
    """The tuple f(z) of every snapshot z. `state` (an index) is for count, `weights` for linear."""
    out: list[tuple[float, ...]] = []
    for z in snapshots(s, m):
        v = [float(values[a]) for a in z]
        if name == "mean":
            out.append((sum(v) / s,))
        elif name == "sum":
            out.append((sum(v),))
        elif name == "max":
            out.append((max(v),))
        elif name == "min":
            out.append((min(v),))
        elif name == "count":
            out.append((float(sum(a == state for a in z)),))
        elif name == "histogram":
            out.append(tuple(float(z.count(a)) for a in range(m)))
        elif name == "identity":
            out.append(tuple(v))
        elif name == "linear" and weights is not None:
            out.append((sum(w * u for w, u in zip(weights, v, strict=True)),))
        else:
            raise ValueError(f"no query {name!r}")
    return out


def l1(u: Iterable[float], v: Iterable[float]) -> float:
    """The l1 distance of two tuples."""
    return sum(abs(a - b) for a, b in zip(u, v, strict=True))


def sensitivity(fvals: Values, s: int, m: int, k: int) -> float:
    """s_k: the largest l1 change of f over pairs of snapshots that differ in at most k coordinates."""
    rows = list(zip(snapshots(s, m), fvals, strict=True))
    return max(l1(f, g) for x, f in rows for y, g in rows if sum(a != b for a, b in zip(x, y, strict=True)) <= k)


# ---------------------------------------------------------------- adversaries and pairs


def neighbour_pairs(s: int, m: int, law: ArrayLike | None = None) -> list[tuple[int, int]]:
    """Ordered pairs of possible snapshots that differ in exactly one coordinate."""
    snaps = snapshots(s, m)
    pi = np.ones(len(snaps)) if law is None else np.asarray(law)
    return [
        (n, o)
        for (n, x), (o, y) in permutations(enumerate(snaps), 2)
        if pi[n] > 0 and pi[o] > 0 and sum(a != b for a, b in zip(x, y, strict=True)) == 1
    ]


def all_pairs(law: ArrayLike) -> list[tuple[int, int]]:
    """Ordered pairs of different possible snapshots."""
    return list(permutations(np.flatnonzero(np.asarray(law) > 0).tolist(), 2))


def adversary_rows(
    B: Array, law: ArrayLike, s: int, m: int, adversary: str
) -> tuple[Array, list[tuple[int, int]], list[tuple[int, dict[int, int]]]]:
    """Rows Pr(z | x_i, x_S), the pairs to compare, and of each row i and all that is known."""
    snaps = snapshots(s, m)
    joint = np.where(np.asarray(law)[:, None] > 0, np.asarray(law)[:, None] * np.nan_to_num(B), 0.0)
    rows: list[Array] = []
    labels: list[tuple[int, dict[int, int]]] = []
    pairs: list[tuple[int, int]] = []
    sizes = {"informed": [s - 1], "uninformed": [0], "any": list(range(s))}[adversary]
    for i in range(s):
        others = [j for j in range(s) if j != i]
        for known in (c for size in sizes for c in combinations(others, size)):
            for seen in product(range(m), repeat=len(known)):
                group = []
                for a in range(m):
                    fixed = dict(zip(known, seen, strict=True)) | {i: a}
                    match = [n for n, x in enumerate(snaps) if all(x[j] == c for j, c in fixed.items())]
                    mass = joint[match].sum(axis=0)
                    if mass.sum() > 0:
                        group.append(len(rows))
                        rows.append(mass / mass.sum())
                        labels.append((i, fixed))
                pairs += permutations(group, 2)
    return np.array(rows), pairs, labels


# ---------------------------------------------------------------- exact leakage


def log_likelihood(rows: Array, fvals: Values, outputs: Values, epsilon_c: float, delta_f: float) -> Array:
    """[row, output]: ln sum_z rows[row, z] exp(-|y - f(z)|_1 eps_c / Delta_f)."""
    f, y = np.array(fvals), np.array(outputs)
    expo = -np.abs(y[:, None, :] - f[None, :, :]).sum(axis=2) * (epsilon_c / delta_f)
    return np.array([logsumexp(safe_log(row)[None, :] + expo, axis=1) for row in rows])


def product_outputs(fvals: Values) -> list[tuple[float, ...]]:
    """The product over output coordinates of the sets of values of that coordinate."""
    return list(product(*(sorted(set(column)) for column in zip(*fvals, strict=True))))


def worst_output(
    rows: Array, pairs: Pairs, fvals: Values, outputs: Values, epsilon_c: float, delta_f: float
) -> tuple[float, tuple[int, int, tuple[float, ...]] | None]:
    """The largest log ratio over pairs of rows and the given outputs, and where it is (row, row', y)."""
    loglik = log_likelihood(rows, fvals, outputs, epsilon_c, delta_f)
    best, where = 0.0, None
    for n, o in pairs:
        ratio = loglik[n] - loglik[o]
        at = int(np.argmax(ratio))
        if ratio[at] > best:
            best, where = float(ratio[at]), (n, o, tuple(outputs[at]))
    return best, where


def exact_leakage(
    B: Array, fvals: Values, s: int, m: int, epsilon_c: float, delta_f: float, adversary: str, law: ArrayLike
) -> float:
    """The sup over all outputs as a maximum over finitely many."""
    rows, pairs, _ = adversary_rows(B, law, s, m, adversary)
    return worst_output(rows, pairs, fvals, product_outputs(fvals), epsilon_c, delta_f)[0]


def dense_grid_leakage(
    B: Array,
    fvals: Values,
    s: int,
    m: int,
    epsilon_c: float,
    delta_f: float,
    adversary: str,
    law: ArrayLike,
    points: int = 41,
    margin: float = 1.0,
) -> float:
    """The same by a scan of `points` outputs a coordinate, to `margin` beyond its range on both sides."""
    rows, pairs, _ = adversary_rows(B, law, s, m, adversary)
    axes = [np.linspace(min(c) - margin, max(c) + margin, points) for c in zip(*fvals, strict=True)]
    return worst_output(rows, pairs, fvals, list(product(*axes)), epsilon_c, delta_f)[0]


# ---------------------------------------------------------------- bounds


def total_variation(rows: Array, pairs: Pairs) -> float:
    """Delta: the largest total variation between paired rows."""
    return min(1.0, max((float(np.abs(rows[n] - rows[o]).sum()) / 2 for n, o in pairs), default=0.0))


def log_mix(inside: ArrayLike, outside: ArrayLike, alpha: float) -> Array:
    """ln(outside + e^alpha inside) for probabilities of a set and of its complement."""
    return np.logaddexp(safe_log(outside), safe_log(inside) + alpha)


def profile_subsets(rows: Array, pairs: Pairs, alpha: float) -> float:
    """Max over pairs and over all subsets S of ln (P(S^c) + e^a P(S)) / (Q(S^c) + e^a Q(S))."""
    member = np.array(list(product((0.0, 1.0), repeat=rows.shape[1])))
    mixed = {n: log_mix(member @ rows[n], (1 - member) @ rows[n], alpha) for n in {n for p in pairs for n in p}}
    return max((float((mixed[n] - mixed[o]).max()) for n, o in pairs), default=0.0)


def profile_sorted(rows: Array, pairs: Pairs, alpha: float) -> float:
    """The same over threshold sets of the likelihood ratio only."""
    best = 0.0
    for n, o in pairs:
        p, q = rows[n], rows[o]
        with np.errstate(divide="ignore", invalid="ignore"):
            order = np.argsort(-np.where(p > 0, p / q, 0.0), kind="stable")
        p, q = p[order], q[order]
        for size in range(1, len(p)):
            top = log_mix(p[:size].sum(), p[size:].sum(), alpha)
            best = max(best, float(top - log_mix(q[:size].sum(), q[size:].sum(), alpha)))
    return best


def profile(rows: Array, pairs: Pairs, alpha: float) -> float:
    """All subsets up to 12 snapshots, threshold sets above."""
    return (profile_subsets if rows.shape[1] <= 12 else profile_sorted)(rows, pairs, alpha)


def freshness(rows: Array, pairs: Pairs) -> float:
    """r: the largest log ratio of paired rows (inf where one is zero and the other is not)."""
    best = 0.0
    for n, o in pairs:
        for p, q in zip(rows[n], rows[o], strict=True):
            if p > 0:
                best = max(best, float(safe_log(p) - safe_log(q)) if q > 0 else np.inf)
    return best


def loose(delta: float, alpha: float) -> float:
    """ln(1 + Delta (e^alpha - 1))."""
    return float(log_mix(delta, 1 - delta, alpha))


def two_point(delta: float, r: float, alpha: float) -> float:
    """ln((1 + (b + Delta)(e^alpha - 1)) / (1 + b (e^alpha - 1))), b = Delta / (e^r - 1)."""
    if delta == 0:
        return 0.0
    with np.errstate(over="ignore"):
        b = float(delta / np.expm1(r))
    top = min(b + delta, 1.0)
    return float(log_mix(top, 1 - top, alpha) - log_mix(b, 1 - b, alpha))


def contraction(kernel: ArrayLike, age: int, pairs: Pairs, alpha: float) -> float:
    """tau_A alpha with tau_A the largest tanh(D/4) over pairs of present snapshots (Birkhoff)."""
    power = np.linalg.matrix_power(np.asarray(kernel, dtype=float), age)
    tau = 0.0
    for x, y in pairs:
        ratios = [safe_log(row[x]) - safe_log(row[y]) for row in power if row[x] > 0 or row[y] > 0]
        spread = np.inf if not np.all(np.isfinite(ratios)) else max(ratios) - min(ratios)
        tau = max(tau, float(np.tanh(spread / 4)))
    return tau * alpha


def lineage_uninformed(coupling: ArrayLike, transitions: ArrayLike, age: int) -> float:
    """Largest range over z of ln Pr(x_i=a | z) / Pr(x_i=b | z); states no past leads to are left out."""
    t = np.asarray(transitions, dtype=float)
    s, m = len(np.asarray(coupling)), t.shape[-1]
    power = np.linalg.matrix_power(joint_kernel(coupling, transitions), age)
    best = 0.0
    for i in range(s):
        member = np.array([[float(x[i] == a) for a in range(m)] for x in snapshots(s, m)])
        law = power @ member  # law[z, a] = Pr(x_i = a | z)
        for a, b in permutations(range(m), 2):
            if law[:, a].max() == 0 or law[:, b].max() == 0:
                continue
            ratios = [safe_log(p[a]) - safe_log(p[b]) for p in law if p[a] > 0 or p[b] > 0]
            best = max(best, np.inf if not np.all(np.isfinite(ratios)) else float(max(ratios) - min(ratios)))
    return best


# ---------------------------------------------------------------- the paper's own formulas


def printed_loose(rows: Array, pairs: Pairs, alpha: float) -> float:
    """Theorem 1 as printed: d(k) Delta_k eps_c, with alpha = d(k) eps_c. Not a bound."""
    return total_variation(rows, pairs) * alpha


def printed_tight(B: Array, law: ArrayLike, s: int, m: int, epsilon_c: float) -> float:
    """Definition 6 and Theorem 2 as printed. Not a bound."""
    snaps = snapshots(s, m)
    pi = np.asarray(law, dtype=float)
    prob = {(x, z): pi[n] * B[n, o] for n, x in enumerate(snaps) if pi[n] > 0 for o, z in enumerate(snaps)}

    def mass(x: dict[int, int], z: dict[int, int]) -> float:
        """Pr of the named present coordinates and the named aged coordinates."""
        return sum(
            p
            for (u, v), p in prob.items()
            if all(u[j] == a for j, a in x.items()) and all(v[j] == a for j, a in z.items())
        )

    def g_range(i: int, x: Snapshot) -> tuple[float, float]:
        """(max, min) over z of Pr[x_i|x_-i,z_-i] Pr[x_-i|x_i,z_i] / (Pr[x_i|x_-i] Pr[x_-i|x_i])."""
        own, whole = {i: x[i]}, dict(enumerate(x))
        rest = {j: a for j, a in whole.items() if j != i}
        below = (mass(whole, {}) / mass(rest, {})) * (mass(whole, {}) / mass(own, {}))
        first, second = [], []  # the two factors depend on z_-i and on z_i separately
        for z_rest in (dict(zip(rest, c, strict=True)) for c in product(range(m), repeat=s - 1)):
            if (base := mass(rest, z_rest)) > 0:
                first.append(mass(whole, z_rest) / base)
        for c in range(m):
            if (base := mass(own, {i: c})) > 0:
                second.append(mass(whole, {i: c}) / base)
        return max(first) * max(second) / below, min(first) * min(second) / below

    best = 0.0
    for i in range(s):
        own = {a: [mass({i: a}, {i: c}) for c in range(m)] for a in range(m)}  # Pr(z_i = c, x_i = a)
        for n, o in neighbour_pairs(s, m, pi):
            x, y = snaps[n], snaps[o]
            if x[i] == y[i]:
                continue
            high, low = g_range(i, x)[0], g_range(i, y)[1]
            gaps = [
                high * p / sum(own[x[i]]) - low * q / sum(own[y[i]]) for p, q in zip(own[x[i]], own[y[i]], strict=True)
            ]
            sets = (abs(sum(c)) for size in range(m + 1) for c in combinations(gaps, size))
            best = max(best, *sets)
    return float(best * epsilon_c)
