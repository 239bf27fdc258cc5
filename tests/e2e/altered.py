"""What is different in a process of `csdp release` before it starts, so that others meet it half way."""

from __future__ import annotations

import multiprocessing

_context = multiprocessing.get_context("forkserver")


class Hold:
    """The first commit waits until it may go on: what a slow process looks like to the others."""

    def __init__(self):
        self.reached, self.released = _context.Event(), _context.Event()

    def __call__(self):
        from csdp.ledger import Ledger

        commit_many, waited = Ledger.commit_many, []

        def slow(ledger, pairs):
            if not waited:
                waited.append(True)
                self.reached.set()
                self.released.wait()
            return commit_many(ledger, pairs)

        Ledger.commit_many = slow
