"""Handing outputs to a sink: at least once, in order, and again from the ledger after a crash."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from csdp.clock import Clock
from csdp.ledger import Ledger, Published
from csdp.publisher import Release
from csdp.stream.sinks import Sink, as_output

#: Entries of the ledger that are looked through at first, from its end.
_WINDOW = 64


class Delivery:
    """Delivers the outputs of one dataset to one sink, after those that an earlier process may not have delivered.

    An output is delivered before the next one is published, so a sink that cannot tell what it has can lack only the
    newest one; that one is delivered again.
    """

    def __init__(self, sink: Sink | None, ledger: Ledger, dataset: str, query: str, clock: Clock) -> None:
        self._sink = sink
        self._ledger = ledger
        self._dataset = dataset
        self._query = query
        self._clock = clock
        self._recovered = sink is None

    def deliver(self, release: Release, stop: threading.Event) -> bool:
        """Hand over one output; False where `stop` was set before the sink took it."""
        if self._sink is None:
            return True
        output = as_output(release, dataset=self._dataset, query=self._query, clock=self._clock)
        return self._sink.deliver(output, stop)

    def recovered(self, stop: threading.Event) -> bool:
        """Deliver, once, what was published before and may not have arrived."""
        if not self._recovered:
            for published in self._undelivered():
                if not self.deliver(Release.of(published), stop):
                    return False
            self._recovered = True
        return True

    def _undelivered(self) -> Iterator[Published]:
        assert self._sink is not None
        newest = self._sink.newest()
        head = self._ledger.summary(self._dataset).head_seq
        window = _WINDOW
        while True:
            after = max(0, head - window)
            found = [p for p in self._ledger.published(self._dataset, after=after) if p.query == self._query]
            if after == 0 or (found and (newest is None or found[0].tick <= newest)):
                break
            window *= 8
        if newest is None:
            yield from found[-1:]
        else:
            yield from (published for published in found if published.tick > newest)
