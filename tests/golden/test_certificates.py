"""Every golden certificate is what it was: to the last bit on the kind of processor that wrote it, else to 1e-9."""

from __future__ import annotations

import json

import pytest

from golden.case import compute, differences, machine
from golden.make import FILE, data_cases

CONTENT = json.loads(FILE.read_text(encoding="utf-8"))
TOLERANCE = 0.0 if CONTENT["machine"] == machine() else 1e-9
WRITTEN = [case for case in CONTENT["cases"] if "model" in case]
#: Tests that share the cases, and how many of them `make test` runs: every kind and query is in each.
SHARES, IN_CI = 72, 30


@pytest.mark.parametrize("share", [pytest.param(n, marks=[pytest.mark.slow] * (n >= IN_CI)) for n in range(SHARES)])
def test_certificates_of_random_systems(share):
    changed = [
        f"{case['name']}{line}"
        for case in WRITTEN[share::SHARES]
        for line in differences(case["expected"], compute(case), tolerance=TOLERANCE)
    ]
    assert not changed, "\n".join(changed)


def test_certificates_of_bundled_data():
    """Fits iterate, so that their numbers differ more between processors."""
    expected = {case["name"]: case["expected"] for case in CONTENT["cases"]}
    tolerance = TOLERANCE and 1e-6
    for case, model in data_cases():
        assert not differences(expected[case["name"]], compute(case, model), tolerance=tolerance)


def test_a_changed_number_is_noticed():
    case = WRITTEN[0]
    wrong = compute({**case, "epsilon_c": case["epsilon_c"] * (1 + 1e-7)})
    assert differences(case["expected"], wrong, tolerance=1e-9)
