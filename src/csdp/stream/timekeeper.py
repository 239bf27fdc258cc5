"""The clock of a stream as it runs: no message moves it where it cannot be, and no single sequence leads it astray.

With times="wall" a time beyond the wall clock is refused. With times="data" nothing says what the present is but the
sequences themselves: a time may lie at most `jump` ticks ahead of what most of them have reached. A clock that came too
far all the same (a wall clock that was wrong, a state file of such a time) is put back when most sequences say so.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from csdp.clock import Clock, Mark, Time, Verdict, WallClock

log = logging.getLogger("csdp.stream")

#: Messages in a row by which a sequence shows that it has reached a time; one, or a few, may be a mistake.
REPEATS = 4
#: Ticks that a time may always lie ahead of most sequences, beside those that an output can rest on.
_JUMP = 10


class Majority:
    """The last times of every sequence, and the time that more than half of them have reached.

    A sequence has reached a time when its last `REPEATS` messages (as many as there were) are not older. So a time that
    fewer than half of the sequences claim moves nothing, and neither do three messages about all of them at once.

    >>> most = Majority(3)
    >>> most.hear([0], 10), most.hear([1], 12), most.hear([2], 10**15)
    (None, None, None)
    >>> most.reached()
    12.0
    """

    def __init__(self, sequences: int) -> None:
        self._last = np.full((sequences, REPEATS), np.inf)  # inf: not said yet

    def hear(self, sequences: npt.ArrayLike, time: Time) -> None:
        """Sequences say that it is `time`, whether that is believed or not."""
        chosen = np.asarray(sequences, dtype=np.intp)
        self._last[chosen, :-1] = self._last[chosen, 1:]
        self._last[chosen, -1] = time

    def reached(self, *, everybody: bool = False) -> Time | None:
        """The greatest time that more than half of those that were heard have reached; None where nobody was.

        `everybody`: more than half of all sequences, heard or not; None where fewer were heard.
        """
        least = self._last.min(axis=1)
        heard = np.sort(least[np.isfinite(least)])[::-1]
        needed = (len(self._last) if everybody else heard.size) // 2 + 1
        return None if heard.size < needed else float(heard[needed - 1])


class Timekeeper:
    """Judges times, and moves the mark.

    Args:
        clock: the grid and its rules. wall: the clock on the wall. dataset: for the log. sequences: how many there are.
        reach: ticks that an output can rest on. charged: the newest tick that was charged; the clock is never put back
            before it.
    """

    def __init__(
        self,
        clock: Clock,
        wall: WallClock,
        *,
        dataset: str,
        sequences: int,
        reach: int,
        charged: Callable[[], int | None],
    ) -> None:
        self.mark: Mark | None = None
        self.put_back = 0  #: how often the clock was wrong and was put back
        self.highest: Time = 0  #: the greatest time that counted when it was
        self._clock, self._wall, self._dataset, self._charged = clock, wall, dataset, charged
        self._ahead = 0
        self._majority = Majority(sequences)
        late = math.ceil(clock.lateness / clock.step)
        self._jump = clock.step * (reach + late + _JUMP if clock.jump is None else clock.jump)
        self._limit: Time | None = None  # of times="data", as it was when last worked out
        self._advanced: Time | None = None

    def observe(self, time: Time, sequences: Callable[[], npt.ArrayLike]) -> Verdict:
        """A message about some sequences arrives: whether its time counts. The mark moves."""
        limit = self._heard(time, sequences)
        moved = self._clock.observe(self.mark, time, limit=limit)
        if moved.verdict == "late" and self._is_put_back(limit):
            moved = self._clock.observe(self.mark, time, limit=limit)
        self.mark = moved.mark
        if moved.verdict == "ahead":
            self._tell_ahead()
        return moved.verdict

    def _tell_ahead(self) -> None:
        """Tell the operator, once for every power of ten."""
        self._ahead += 1
        if str(self._ahead).strip("0") == "1":
            than = "the wall clock" if self._clock.times == "wall" else "most sequences"
            log.warning("%s: %d messages lay too far ahead of %s, and were refused", self._dataset, self._ahead, than)

    def advance(self, time: Time) -> None:
        """Time passes without a message; with times="wall" never beyond the wall clock."""
        if self._clock.times == "wall":
            time = min(time, self._wall.now())
        else:
            self._advanced = time if self._advanced is None else max(time, self._advanced)
            self._limit = None
        self.mark = self._clock.advance(self.mark, time).mark

    def over(self) -> int | None:
        """The last tick that may be published: it is closed, and the wall clock, if there is one, has passed its end.

        The mark alone does not do: a wall clock that was set back since is waited for.
        """
        if self.mark is None or self._clock.times == "data":
            return None if self.mark is None else self.mark.closed
        return min(self.mark.closed, self._clock.over(self._wall.now()))

    @property
    def trouble(self) -> str:
        """What is wrong with the clock, in words; empty where nothing is."""
        if self._clock.times == "data":
            return ""
        allowed = self._clock.limit(self._wall.now())
        beyond = self.mark is not None and self.mark.newest > allowed
        return self._wall.trouble or ("the newest time lies beyond the wall clock; ticks wait" if beyond else "")

    def _heard(self, time: Time, sequences: Callable[[], npt.ArrayLike]) -> Time:
        """The greatest time that counts now, from what the wall clock or the others say."""
        if self._clock.times == "wall":
            limit = self._clock.limit(self._wall.now())
            if self.mark is not None and self.mark.newest > limit:
                self._majority.hear(sequences(), time)  # needed only to find out which of the two is wrong
            return limit
        self._majority.hear(sequences(), time)
        if self._limit is None or time > self._limit:
            reached = self._majority.reached()
            assert reached is not None
            self._limit = self._jump + (reached if self._advanced is None else max(reached, self._advanced))
        return self._limit

    def _is_put_back(self, limit: Time) -> bool:
        """Put the clock back if it has come where it cannot be, and more than half of all sequences are behind it."""
        reached = self._majority.reached(everybody=True)
        if self.mark is None or reached is None:
            return False
        highest = limit
        if self._clock.times == "data":
            highest = self._jump + (reached if self._advanced is None else max(reached, self._advanced))
        if self.mark.newest <= highest or reached > highest:
            return False
        self.mark, self.highest = self._clock.put_back(reached, self._charged()), highest
        self._limit = None
        self.put_back += 1
        return True
