"""`TeamWatch`: notices that calls which are shared among threads wait for a thread that does not run.

A call ends when its last thread does. Where another program has the processor of a worker, the caller waits for some
milliseconds, whatever the call takes alone. So the times of shared calls are watched:

    shared          all calls are; of those that took twice as long as ever, or waited for longer than the caller's own
                    part took, the lost time is added up
    alone, tried    a third of the time since the first of these was lost: a few calls alone show whether that is better
    alone           it was: calls are the caller's alone for a quarter of a second, later for up to two
    shared, tried   then a few are shared; if they take less than alone, all are

Slow memory looks the same at first, and costs a few calls alone.

>>> watch = TeamWatch()
>>> for _ in range(2):
...     watch.note(began=0, took=5_000_000, waited=4_900_000)
>>> watch.limit == 0, watch.shares(0)
(True, False)
"""

import sys

SLACK = 100_000
"""Nanoseconds that any call may take longer: a worker that sleeps is woken."""
TRIED = 3
"""Calls of a trial."""
WAITS = 250_000_000, 2_000_000_000
"""Nanoseconds for which calls are the caller's alone: for the first time, and at most after more and more of them."""
_WINDOW = 100_000_000  # nanoseconds in which slow calls are added up
_LOST = 3  # the part of the time that must be lost is one of so many
_STALL = 50_000_000  # nanoseconds: who loses so many in one call need not be slow again


class TeamWatch:
    """What one reorder knows of its shared calls. Threads may use it at once: a count that is off by one is no harm."""

    __slots__ = (
        "_alone",
        "_first",
        "_lost",
        "_shared_since",
        "_slow",
        "_spent",
        "_times",
        "_until",
        "_wait",
        "limit",
        "usual",
    )

    def __init__(self) -> None:
        """Share calls; nothing is known of how long they take."""
        self.usual = sys.maxsize
        """Nanoseconds of the fastest shared call."""
        self.limit = sys.maxsize
        """Nanoseconds from which on a shared call is slow; 0 while calls are the caller's alone or tried."""
        self._wait = WAITS[0]
        self._first = self._lost = self._spent = self._slow = 0
        self._times: list[int] = []
        self._alone = 0.0  # nanoseconds of a call alone; 0 before any was tried
        self._until = 0  # when calls may be shared again
        self._shared_since = 0

    def note(self, began: int, took: int, waited: int = 0) -> None:
        """Note a shared call that was faster than any before, or slow, or waited for others.

        Args:
            began: when, in nanoseconds.
            took: nanoseconds of the call.
            waited: nanoseconds of these in which the caller's own part was done.
        """
        best = min(self.usual, took - waited)
        if took < self.usual:
            self.usual, self.limit = took, 2 * took + SLACK
        if took <= 2 * best + SLACK:
            return
        if not self._slow or began - self._first > _WINDOW + 8 * took:
            self._first, self._lost, self._spent, self._slow = began, 0, 0, 0
        self._slow += 1
        self._lost += took - best
        self._spent += took
        if (self._slow > 1 or self._lost > _STALL) and _LOST * self._lost > began + took - self._first:
            self._times, self._alone, self._until = [], 0.0, 0
            self.limit = 0

    def shares(self, began: int) -> bool:
        """Whether a call that begins now is shared, while that is in doubt."""
        return self._alone > 0 and began >= self._until

    def took(self, is_shared: bool, began: int, took: int) -> None:
        """Note how long a call took while that was in doubt."""
        times = self._times
        if is_shared:
            times.append(took)
            if took > 2 * self._alone + SLACK:
                self._be_alone(began + took)
            elif len(times) >= TRIED:
                if sum(times) < self._alone * len(times):
                    self._share(began, min(times))
                else:
                    self._be_alone(began + took)
        elif not self._alone:
            times.append(took)
            if len(times) >= TRIED:
                self._judge(sum(times) / len(times), began + took)

    def _judge(self, alone: float, now: int) -> None:
        """Decide between calls alone and the slow ones before."""
        slow = self._spent / max(1, self._slow)
        if alone < slow:
            self._alone = alone
            if self._first - self._shared_since > self._wait:
                self._wait = WAITS[0]
            self._be_alone(now)
        else:
            # It is not the team: with this data calls take so long.
            self._share(now, round(slow))

    def _be_alone(self, now: int) -> None:
        self._times, self._until = [], now + self._wait
        self._wait = min(2 * self._wait, WAITS[1])

    def _share(self, now: int, usual: int) -> None:
        self.usual, self.limit, self._shared_since = usual, 2 * usual + SLACK, now
        self._first = self._lost = self._spent = self._slow = 0
        self._times = []
