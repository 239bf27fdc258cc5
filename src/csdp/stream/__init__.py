"""Streams: readings arrive, ticks close, the publisher publishes each of them once, outputs leave."""

from csdp.clock import Clock
from csdp.stream.messages import Reading, Snapshot
from csdp.stream.runner import Runner
from csdp.stream.sinks import FileSink, LineSink
from csdp.stream.sources import FileSource, StreamSource, run, stop_on_signals
from csdp.stream.ticks import Status

__all__ = [
    "Clock",
    "FileSink",
    "FileSource",
    "LineSink",
    "Reading",
    "Runner",
    "Snapshot",
    "Status",
    "StreamSource",
    "run",
    "stop_on_signals",
]
