"""Reports of chains with environments."""

from csdp import CoupledChain, EnvironmentChain
from csdp.report.records import Dependence, dependences


def test_a_dependence_is_the_strongest_of_all_environments():
    follow = CoupledChain([[0.75, 0.25], [0, 1.0]], [[0.7, 0.3], [0.3, 0.7]])
    alone = CoupledChain([[1.0, 0], [0, 1.0]], [[0.6, 0.4], [0.1, 0.9]])
    expected = [Dependence(0, 0, 0.5), Dependence(0, 1, 0.1), Dependence(1, 1, 0.5)]
    for how in ({"cycle": (0, 1)}, {"series": "weather"}, {"switching": [[0.5, 0.5], [0.5, 0.5]]}):
        assert dependences(EnvironmentChain([follow, alone], **how)) == expected
