"""The paper's figure of error against noise level (a) and age (b), and of the optimal noise level (c)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import csdp
from study import drawing
from study.baselines.given_aged import Law, error_given_aged
from study.record import Chapter, Claim, format_list, format_range, is_close, no_entries
from study.setting import COUPLINGS, EQUAL, MEAN, MIXED, correlation, leak, level_for, pair

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = (0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0)
AGES = (0, 1, 2, 3, 4, 5, 6, 8, 10)
TARGETS = (0.6, 0.7, 0.8, 0.9, 1.0)
OLDEST = 20
PRINTED: Law = "independent-marginals"


def error(
    given: tuple[float, float] | None,
    *,
    age: int,
    epsilon_c: float,
    own: float = 0.75,
    law: Law = "joint",
) -> float:
    """Mean squared error given the aged values, or over all of them; the paper takes the sequences as independent."""
    if given is None:
        return csdp.mse(pair(own), MEAN, ages=age, epsilon_c=epsilon_c).mse
    return error_given_aged(pair(own), MEAN, ages=age, epsilon_c=epsilon_c, given=given, law=law).mse


def optimal_level(given: tuple[float, float], target: float, *, law: Law = PRINTED) -> float:
    """Panel (c): the least epsilon_c that meets an error target at age 20, given the aged values."""
    error = error_given_aged(pair(0.75), MEAN, ages=OLDEST, epsilon_c=1.0, given=given, law=law)
    return level_for(target, error.aging)


def claims() -> list[Claim]:
    """Every number and statement that the paper reads off this figure."""
    return [*_noise_claims(), *_age_claims(), *_optimum_claims()]


def _noise_claims() -> list[Claim]:
    squares = [error(given, age=OLDEST, epsilon_c=10.0, law=PRINTED) for given in (MIXED, EQUAL)]
    roots = [value**0.5 for value in squares]
    joint = [error(given, age=OLDEST, epsilon_c=10.0) for given in (MIXED, EQUAL)]
    spread = {
        given: [error(given, age=age, epsilon_c=10.0, law=PRINTED) for age in (1, 2, 3, 5, 10)]
        for given in (MIXED, EQUAL)
    }
    true_spread = {
        given: [error(given, age=age, epsilon_c=10.0) for age in (1, 2, 3, 5, 10)] for given in (MIXED, EQUAL)
    }
    swapped = "the words uniform and varying exchanged between (a) and (c)"
    return [
        Claim(
            name="error-40",
            where="utility figure (a), its summary",
            says="At epsilon_c 10, one pair of aged values (1, 0) has 40 % less error than the other (1, 1)",
            paper="40%",
            printed=f"{1 - roots[0] / roots[1]:.0%} of roots ({format_list(roots, '.4f')}); "
            f"{1 - squares[0] / squares[1]:.0%} of squares",
            exact=f"{1 - (joint[0] / joint[1]) ** 0.5:.0%} of roots; nobody chooses which values occur",
            follows=is_close(1 - roots[0] / roots[1], 0.40),
            holds=joint[0] < joint[1],
            only_with=f"root mean squares, independent marginals, and {swapped}",
        ),
        Claim(
            name="stable",
            where="utility figure (a)",
            says="With aged values (1, 0) the error stays the same over ages, with (1, 1) it grows",
            paper="stable, growing",
            printed=f"{format_range(spread[MIXED], '.3f')} and {format_range(spread[EQUAL], '.3f')} over ages 1 to 10",
            exact=f"{format_range(true_spread[MIXED], '.3f')} and {format_range(true_spread[EQUAL], '.3f')}",
            follows=max(spread[MIXED]) / min(spread[MIXED]) < 1.1 and spread[EQUAL] == sorted(spread[EQUAL]),
            holds=max(true_spread[MIXED]) / min(true_spread[MIXED]) < 1.2
            and true_spread[EQUAL] == sorted(true_spread[EQUAL]),
        ),
    ]


def _age_claims() -> list[Claim]:
    def ratio(level: float, law: Law) -> float:
        found = [error(given, age=10, epsilon_c=level, law=law) for given in (EQUAL, MIXED)]
        return found[0] / found[1] - 1

    by_coupling = {
        law: [error(MIXED, age=3, epsilon_c=1.0, own=own, law=law) for own in COUPLINGS.values()]
        for law in (PRINTED, "joint")
    }
    apart = {law: max(values) / min(values) - 1 for law, values in by_coupling.items()}
    return [
        Claim(
            name="error-age-40",
            where="utility figure (b)",
            says="At age 10, aged values (1, 1) have 40 % more error than (1, 0)",
            paper="40%",
            printed=f"{ratio(1.0, PRINTED):.0%} at epsilon_c 1; {ratio(10.0, PRINTED):.0%} at 10",
            exact=f"{ratio(1.0, 'joint'):.0%} at epsilon_c 1; {ratio(10.0, 'joint'):.0%} at 10",
            follows=is_close(ratio(1.0, PRINTED), 0.40),
            holds=ratio(1.0, "joint") > 0,
            only_with="epsilon_c = 1, which is not stated",
        ),
        Claim(
            name="coupling-error",
            where="utility figure (b)",
            says="The coupling hardly changes the error: all settings agree after age 2",
            paper="converge",
            printed=f"apart by {apart[PRINTED]:.1%} at age 3",
            exact=f"apart by {apart['joint']:.1%} at age 3",
            follows=apart[PRINTED] < 0.02,
            holds=apart["joint"] < 0.02,
        ),
        Claim(
            name="coupling-inflates",
            where="utility and noise",
            says="Stronger coupling inflates the error out of proportion",
            paper="inflates",
            printed=f"by {apart[PRINTED]:.1%} at age 3, from no to full coupling",
            exact=f"by {apart['joint']:.1%}",
            follows=apart[PRINTED] > 0.2,
            holds=apart["joint"] > 0.2,
            note="the row above is from the same paper",
        ),
    ]


def _optimum_claims() -> list[Claim]:
    found = {given: [optimal_level(given, target) for target in (0.6, 1.0)] for given in (EQUAL, MIXED)}
    joint = {given: [optimal_level(given, target, law="joint") for target in (0.6, 1.0)] for given in (EQUAL, MIXED)}
    best = csdp.find_plan(pair(0.75), MEAN, max_mse=0.6, max_age=OLDEST, estimate="raw")
    saved = {
        "printed": 1 - found[MIXED][0] / found[EQUAL][0],
        "exact": 1 - leak(pair(0.75), OLDEST, joint[MIXED][0]) / leak(pair(0.75), OLDEST, joint[EQUAL][0]),
    }
    by_age = [correlation(0.75, age) * optimal_level(EQUAL, 0.6) for age in (1, 5, 20)]
    numbers = {EQUAL: (1.49, 0.89), MIXED: (1.03, 0.76)}
    names = {EQUAL: "(1, 1)", MIXED: "(1, 0)"}
    return [
        *(
            Claim(
                name=f"optimum-{names[given][1]}{names[given][4]}",
                where="utility figure (c)",
                says=f"The optimal epsilon_c falls over accuracy targets 0.6 to 1.0, aged values {names[given]}",
                paper=f"{numbers[given][0]} to {numbers[given][1]}",
                printed=" to ".join(format(value, ".2f") for value in found[given]),
                exact=" to ".join(format(value, ".2f") for value in joint[given]) + " under the joint law",
                follows=all(is_close(a, b, within=0.01) for a, b in zip(found[given], numbers[given], strict=True)),
                holds=joint[given][0] > joint[given][1],
                only_with="independent marginals, given aged values, age 20",
            )
            for given in (EQUAL, MIXED)
        ),
        Claim(
            name="privacy-30",
            where="utility figure (c), its summary",
            says="At target 0.6 one pair of aged values needs 30 % less leakage than the other",
            paper="30%",
            printed=f"{saved['printed']:.0%}, the ratio of the two epsilon_c",
            exact=f"{saved['exact']:.0%}; the values are private, so no plan can depend on them",
            follows=is_close(saved["printed"], 0.30),
            holds=saved["exact"] > 0,
            only_with="noise chosen after looking at the private values",
        ),
        Claim(
            name="oldest-best",
            where="utility figure (c)",
            says="The best solutions use the greatest age, 20",
            paper="20",
            printed=f"Delta_k epsilon_c {format_list(by_age, '.2g')} at age 1, 5, 20",
            exact=f"age {best.plan.ages[0]}, leakage {best.leakage.epsilon:.2g}; publishing nothing: error "
            f"{best.error.no_data:.3f}, leakage 0",
            follows=by_age == sorted(by_age, reverse=True),
            holds=best.plan.ages[0] == OLDEST,
            only_with="targets that need no data",
        ),
        Claim(
            name="targets",
            where="utility and comparison figures",
            says="Accuracy targets of 0.6 to 1.0 ask for data",
            paper="0.6 to 1.0",
            printed="not discussed",
            exact=f"the variance of the answer is {format_range([_no_data(0.5), _no_data(0.75)], '.3f')}: "
            "the long-run mean meets them all",
            follows=None,
            holds=_no_data(0.5) > 0.6,
        ),
    ]


def _no_data(own: float) -> float:
    return csdp.mse(pair(own), MEAN, ages=1, epsilon_c=1.0).no_data


def figure() -> Figure:
    """The three panels."""
    drawn, (a, b, c) = drawing.panels(3)
    for given, name, colour in ((EQUAL, "(1, 1)", drawing.COLOURS[0]), (MIXED, "(1, 0)", drawing.COLOURS[1])):
        for law, style, kind in (("joint", drawing.EXACT, "exact"), (PRINTED, drawing.PRINTED, "printed")):
            chosen: Law = "joint" if law == "joint" else PRINTED
            label = f"aged values {name}, {kind}"
            a.plot(
                LEVELS,
                [error(given, age=OLDEST, epsilon_c=e, law=chosen) for e in LEVELS],
                color=colour,
                label=label,
                **style,
            )
            b.plot(AGES, [error(given, age=age, epsilon_c=1.0, law=chosen) for age in AGES], color=colour, **style)
            c.plot(TARGETS, [optimal_level(given, x, law=chosen) for x in TARGETS], color=colour, **style)
    every = {"color": drawing.COLOURS[2], "linewidth": 1.8}
    a.plot(LEVELS, [error(None, age=OLDEST, epsilon_c=e) for e in LEVELS], label="over all values, exact", **every)
    b.plot(AGES, [error(None, age=age, epsilon_c=1.0) for age in AGES], **every)
    for axes in (a, b):
        axes.axhline(_no_data(0.75), label="publish nothing", **drawing.NO_DATA)
    c.plot(TARGETS, [0.0] * len(TARGETS), **drawing.NO_DATA)
    a.set_xscale("log")
    a.set_ylim(0, 2.6)
    b.set_ylim(0, 1.0)
    c.set_ylim(-0.05, 1.7)
    square = "Mean squared error"
    drawing.finish(a, title="(a) By noise level, age 20, weight 0.75", x="epsilon_c (log)", y=square)
    drawing.finish(b, title="(b) By age, epsilon_c 1", x="Age", y=square, legend=None)
    drawing.finish(c, title="(c) Least epsilon_c for an error target", x="Error target", y="epsilon_c", legend=None)
    c.annotate("publish nothing", (0.6, 0.03), color=drawing.INK, fontsize=8.5)
    return drawn


CHAPTER = Chapter(
    "utility", "Error against noise level and age, and the optimal noise level", claims, no_entries, figure
)
