"""The paper's figure of leakage against coupling (a), age (b) and noise level (c)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from csdp.paper import cmc_leakage_coefficient
from study import drawing
from study.record import Chapter, Claim, format_list, format_range, is_close, no_entries
from study.setting import COUPLINGS, correlation, leak, pair, printed_leakage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WEIGHTS = tuple(round(w, 2) for w in np.linspace(0, 1, 21).tolist())
AGES = (0, 1, 2, 3, 4, 5, 6)
LEVELS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)


def by_coupling(age: int, epsilon_c: float = 1.0) -> dict[str, list[float]]:
    """Panel (a): Theorem 1 and the truth against the weight on oneself."""
    return {
        "printed": [printed_leakage(w, age, epsilon_c) for w in WEIGHTS],
        "exact": [leak(pair(w), age, epsilon_c) for w in WEIGHTS],
    }


def by_age(own: float, epsilon_c: float = 1.0) -> dict[str, list[float]]:
    """Panel (b): against the age."""
    return {
        "printed": [printed_leakage(own, age, epsilon_c) for age in AGES],
        "exact": [leak(pair(own), age, epsilon_c) for age in AGES],
    }


def by_level(age: int, own: float = 0.5) -> dict[str, list[float]]:
    """Panel (c): against the noise level."""
    return {
        "printed": [printed_leakage(own, age, level) for level in LEVELS],
        "exact": [leak(pair(own), age, level) for level in LEVELS],
    }


def _fall_claim(start: int, stop: int, share: float, *, panel: str, note: str) -> Claim:
    """The paper's number for how far leakage falls between two ages, at every coupling."""
    curves = [by_age(own) for own in COUPLINGS.values()]
    falls = {kind: [1 - curve[kind][stop] / curve[kind][start] for curve in curves] for kind in ("printed", "exact")}
    return Claim(
        name=f"fall-{start}-{stop}",
        where=f"leakage figure ({panel})",
        says=f"From age {start} to {stop} leakage falls by about {100 * share:.0f} %",
        paper=f"{share:.0%}",
        printed=format_range(falls["printed"]),
        exact=format_range(falls["exact"]),
        follows=any(is_close(fall, share) for fall in falls["printed"]),
        holds=all(fall >= share for fall in falls["exact"]),
        note=note,
    )


def claims() -> list[Claim]:
    """Every number and statement that the paper reads off this figure."""
    return [_shape_claim(), *_coupling_claims(), *_old_data_claims(), *_age_claims(), *_level_claims()]


def _shape_claim() -> Claim:
    curve = by_coupling(1)
    places = (0, WEIGHTS.index(0.5), len(WEIGHTS) - 1)
    lowest = {kind: WEIGHTS[int(np.argmin(np.round(values, 9)))] for kind, values in curve.items()}
    own_degree = leak(pair(1.0), 1, 1.0, "printed-loose")
    return Claim(
        name="u-shape",
        where="leakage figure (a)",
        says="Against the weight on oneself, leakage is U-shaped, least at 0.5",
        paper="least at 0.5",
        printed=f"{format_list([curve['printed'][i] for i in places])} at 0, 0.5, 1",
        exact=f"{format_list([curve['exact'][i] for i in places])}: an arch",
        follows=lowest["printed"] == 0.5,
        holds=lowest["exact"] == 0.5,
        only_with="d(2) = 2 also where nothing is coupled",
        note=f"with its own k = 1 at weight 1 Theorem 1 gives {own_degree:.3g} there, below 0.48 at 0.5",
    )


def _coupling_claims() -> list[Claim]:
    distance = [correlation(own, 1) for own in (1.0, 0.5)]
    exact = [leak(pair(own), 1, 1.0) for own in (1.0, 0.5)]
    phi = [
        cmc_leakage_coefficient([[0.7, 0.3], [0.3, 0.7]], strength=strength, ages=1).value
        for strength in (0.0, 0.25, 0.5)
    ]
    return [
        Claim(
            name="coupling-40",
            where="conclusion",
            says="Stronger coupling lowers the worst leakage, by up to 40 % at weight 0.5",
            paper="40%",
            printed=f"{1 - distance[1] / distance[0]:.0%} (Delta_k {format_list(distance)} at age 1)",
            exact=f"leakage {format_list(exact)}: {exact[1] / exact[0] - 1:.0%} higher",
            follows=is_close(1 - distance[1] / distance[0], 0.40),
            holds=exact[1] < exact[0],
        ),
        Claim(
            name="stronger-coupling",
            where="abstract, introduction",
            says="Stronger coupling can lower the worst-case leakage, because perturbations disperse",
            paper="lower",
            printed=f"{format_list([printed_leakage(own, 1, 1.0) for own in COUPLINGS.values()])} "
            "at weight 1, 0.75, 0.5",
            exact=f"{format_list([leak(pair(own), 1, 1.0) for own in COUPLINGS.values()], '.4f')}",
            follows=printed_leakage(0.5, 1, 1.0) < printed_leakage(1.0, 1, 1.0),
            holds=exact[1] < exact[0],
            note="from age 4 on the order turns, by less than 2 %",
        ),
        Claim(
            name="phi",
            where="privacy leakage under CMC",
            says="The coefficient Phi, a worst case over all couplings up to a strength, shows that coupling "
            "lowers leakage",
            paper="falls",
            printed=f"{format_list(phi)} up to strength 0, 0.25, 0.5",
            exact="a worst case over more chains cannot fall",
            follows=phi[2] < phi[0],
            holds=phi[2] < phi[0],
            note="another sentence of the paper says that stronger coupling raises leakage",
        ),
        Claim(
            name="symmetry",
            where="set-up",
            says="A weight w on oneself and 1 - w are equally strong couplings",
            paper="equal",
            printed=f"{format_list([printed_leakage(w, 2, 1.0) for w in (0.25, 0.75)])} at weights 0.25, 0.75, age 2",
            exact=format_list([leak(pair(w), 2, 1.0) for w in (0.25, 0.75)]),
            follows=is_close(printed_leakage(0.25, 2, 1.0), printed_leakage(0.75, 2, 1.0), within=1e-9),
            holds=all(is_close(leak(pair(0.25), age, 1.0), leak(pair(0.75), age, 1.0), within=1e-9) for age in AGES),
        ),
    ]


def _old_data_claims() -> list[Claim]:
    late = {kind: [by_age(own)[kind][5] for own in COUPLINGS.values()] for kind in ("printed", "exact")}
    apart = {kind: max(values) / min(values) - 1 for kind, values in late.items()}
    return [
        _fall_claim(0, 4, 0.70, panel="a", note="it falls by much more"),
        Claim(
            name="beyond-4",
            where="leakage figure (a)",
            says="Beyond age 4 the coupling makes no difference worth mention",
            paper="negligible",
            printed=f"{format_list(late['printed'])} at age 5: apart by {apart['printed']:.0%}, or 0.01",
            exact=f"{format_list(late['exact'])}: apart by {apart['exact']:.1%}",
            follows=max(late["printed"]) - min(late["printed"]) < 0.02,
            holds=apart["exact"] < 0.02,
        ),
    ]


def _age_claims() -> list[Claim]:
    curves = {name: by_age(own) for name, own in COUPLINGS.items()}
    left = {kind: [curve[kind][2] / curve[kind][1] for curve in curves.values()] for kind in ("printed", "exact")}
    faster = {kind: [1 - share / shares[0] for share in shares[1:]] for kind, shares in left.items()}
    late = {kind: [curve[kind][6] for curve in curves.values()] for kind in ("printed", "exact")}
    return [
        _fall_claim(1, 3, 0.60, panel="b", note="60 % is what one step takes away"),
        Claim(
            name="faster-15",
            where="leakage figure (b)",
            says="With full and medium coupling the first decay is about 15 % faster than without",
            paper="15%",
            printed=f"{format_range(faster['printed'])} less is left from age 1 to 2",
            exact=f"{format_range(faster['exact'])} less is left",
            follows=is_close(float(np.mean(faster["printed"])), 0.15),
            holds=min(faster["exact"]) > 0,
            only_with="Delta_k in place of the leakage",
            note="the weights in the legend are those on oneself, not on each other",
        ),
        Claim(
            name="near-zero-6",
            where="leakage figure (b)",
            says="By age 6 leakage is below 0.05 at every coupling",
            paper="< 0.05",
            printed=format_list(late["printed"], ".4f"),
            exact=format_list(late["exact"], ".4f"),
            follows=max(late["printed"]) < 0.05,
            holds=max(late["exact"]) < 0.05,
        ),
    ]


def _level_claims() -> list[Claim]:
    shares = {
        "printed": [
            1 - printed_leakage(w, 5, e) / printed_leakage(w, 1, e)
            for w in COUPLINGS.values()
            for e in (1.0, 5.0, 10.0)
        ],
        "exact": [1 - leak(pair(w), 5, e) / leak(pair(w), 1, e) for w in COUPLINGS.values() for e in (1.0, 5.0, 10.0)],
    }
    growth = {
        **{
            ("printed", a): [printed_leakage(w, a, 10.0) / printed_leakage(w, a, 1.0) for w in COUPLINGS.values()]
            for a in (1, 5)
        },
        **{("exact", a): [leak(pair(w), a, 10.0) / leak(pair(w), a, 1.0) for w in COUPLINGS.values()] for a in (1, 5)},
    }
    return [
        Claim(
            name="less-95",
            where="leakage figure (c)",
            says="Data of age 5 leaks about 95 % less than data of age 1, at every noise level from 1 to 10",
            paper="95%",
            printed=format_range(shares["printed"]),
            exact=format_range(shares["exact"]),
            follows=all(is_close(share, 0.95) for share in shares["printed"]),
            holds=min(shares["exact"]) > 0.95,
        ),
        *(
            Claim(
                name=f"growth-{age}",
                where="leakage figure (c)",
                says=f"From epsilon_c 1 to 10, leakage at age {age} grows nonlinearly, {number:g} times",
                paper=f"{number:g}x",
                printed=format_range(growth["printed", age], ".3g") + "x: Theorem 1 is linear",
                exact=format_range(growth["exact", age], ".3g") + "x",
                follows=any(is_close(value, number) for value in growth["printed", age]),
                holds=max(growth["exact", age]) < 9 and min(growth["exact", 1]) > max(growth["exact", 5]),
                note="nonlinear it is, and more so for fresh data: age alone caps the leakage at any noise level",
            )
            for age, number in ((1, 3.0), (5, 1.5))
        ),
    ]


def figure() -> Figure:
    """The three panels."""
    drawn, (a, b, c) = drawing.panels(3)
    for age, colour in zip((1, 2, 4), drawing.COLOURS, strict=False):
        curve = by_coupling(age)
        a.plot(WEIGHTS, curve["exact"], color=colour, label=f"age {age}, exact", **drawing.EXACT)
        a.plot(WEIGHTS, curve["printed"], color=colour, label=f"age {age}, printed", **drawing.PRINTED)
    for (name, own), colour in zip(COUPLINGS.items(), drawing.COLOURS, strict=False):
        curve = by_age(own)
        b.plot(AGES[1:], curve["exact"][1:], color=colour, marker="o", markersize=4, label=name, **drawing.EXACT)
        b.plot(AGES[1:], curve["printed"][1:], color=colour, **drawing.PRINTED)
    for age, colour in zip((1, 2, 5), drawing.COLOURS, strict=False):
        curve = by_level(age)
        c.plot(LEVELS, curve["exact"], color=colour, label=f"age {age}", **drawing.EXACT)
        c.plot(LEVELS, curve["printed"], color=colour, **drawing.PRINTED)
    level = "Leakage of the present, epsilon"
    drawing.finish(a, title="(a) By coupling, epsilon_c 1", x="Weight on oneself", y=level, legend="upper center")
    a.set_ylim(0, 1.25)
    drawing.finish(b, title="(b) By age (dashed: printed)", x="Age", y=f"{level} (log)", log=True)
    drawing.finish(c, title="(c) By noise level, weight 0.5", x="epsilon_c", y=f"{level} (log)", log=True)
    return drawn


CHAPTER = Chapter("leakage", "Leakage against coupling, age and noise level", claims, no_entries, figure)
