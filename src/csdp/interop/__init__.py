"""Neighbours: a plan inside OpenDP and dp_accounting, and releases as pandas, polars or arrow tables.

Only plain, event-level differential privacy crosses over: what one release tells about one reading, under any model.
The leakage of the present, which knows the correlations, has no counterpart there and stays with csdp.
"""

from csdp.interop.events import dp_accounting_event
from csdp.interop.frames import releases_frame
from csdp.interop.measurement import opendp_measurement

__all__ = ["dp_accounting_event", "opendp_measurement", "releases_frame"]
