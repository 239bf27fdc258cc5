"""Streams: readings arrive, ticks close, the publisher publishes each of them once, outputs leave."""

from csdp.clock import Advance, Clock, Mark
from csdp.stream.messages import Bad, Nearest, Reading, Snapshot
from csdp.stream.runner import Runner
from csdp.stream.sinks import FileSink, LineSink, Sink
from csdp.stream.sources import FileSource, Source, StreamSource, run, stop_on_signals
from csdp.stream.ticks import Status

__all__ = [
    "Advance",
    "Bad",
    "Clock",
    "FileSink",
    "FileSource",
    "LineSink",
    "Mark",
    "Nearest",
    "Reading",
    "Runner",
    "Sink",
    "Snapshot",
    "Source",
    "Status",
    "StreamSource",
    "run",
    "stop_on_signals",
]
