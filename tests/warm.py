"""Imported where commands are forked from: the compiled loops that nearly all of them use are loaded once."""

import gc

import csdp
from csdp.accountant import Accountant

_PAIR = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
Accountant(csdp.Plan(_PAIR, csdp.Mean(), 2, 0.5)).limit()
gc.freeze()  # what is loaded stays shared: no collection in a fork touches it
