"""Event time: the clock that streams and clusters share, under the name by which streams know it."""

from csdp.clock import TIME_LIMIT, Advance, Clock, Mark, Time, Verdict, checked_time, parsed_duration, parsed_time

__all__ = [
    "TIME_LIMIT",
    "Advance",
    "Clock",
    "Mark",
    "Time",
    "Verdict",
    "checked_time",
    "parsed_duration",
    "parsed_time",
]
