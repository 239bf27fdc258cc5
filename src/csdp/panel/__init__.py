"""From files and frames to states: readings on a regular grid, discretisers, and panels of states."""

from csdp.panel.discretise import Discretiser
from csdp.panel.panel import Panel, Readings, to_states
from csdp.panel.read import FoundInput, InputSpec, find_input, read_panel, read_readings

__all__ = [
    "Discretiser",
    "FoundInput",
    "InputSpec",
    "Panel",
    "Readings",
    "find_input",
    "read_panel",
    "read_readings",
    "to_states",
]
