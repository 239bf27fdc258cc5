"""Interoperation: a plan in OpenDP and dp_accounting, and releases as pandas, polars or arrow tables.

Only plain, event-level differential privacy is passed on: the leakage of one reading by one release, under any model.
The CSDP leakage of the present, which takes correlations into account, has no counterpart in these libraries.
"""

from csdp.interop.conversions import dp_accounting_event, opendp_measurement, releases_frame

__all__ = ["dp_accounting_event", "opendp_measurement", "releases_frame"]
