"""From files and frames to states: readings on a regular grid, discretisers, and panels of states."""

from csdp.panel.discretiser import Discretiser
from csdp.panel.read import Outside, read_panel, read_readings, to_states
from csdp.panel.readings import Panel, Readings

__all__ = ["Discretiser", "Outside", "Panel", "Readings", "read_panel", "read_readings", "to_states"]
