"""`AdaptiveTeam`: how many threads the next run of a program uses, from how long its runs take.

    team = AdaptiveTeam(most=2, free=lambda most: 2, expected=22e-3)
    team.note(team.threads, seconds)        after each run

A team of threads that meets at barriers waits for a thread that does not run, so on two processors that together
compute as fast as one a run takes up to ten times what it takes on one thread.

- **Fewer threads.** Where runs take longer than expected, or than they took before, `free` tells how many threads run
  now. If these are fewer, the team shrinks at once. Else some runs on half of the threads follow, and the faster team
  goes on: processors may be taken in ways that a short measurement does not see.
- **More threads.** A team that was made smaller is compared with a larger one every few seconds, as far as `free`
  allows. One that loses clearly is given up after one run.

`AdaptiveTeam` reads the time through `clock` alone.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from inlay.forks import ForkResetLock
from inlay.measure.interleaved import Clock, clock
from inlay.measure.processors import cpu_quota, recent_processors

SLOW = 2.0
"""Times the reference from which on a run counts as slow."""
LOST = 1.5
"""Times the reference that runs take on average where it is worth to look for the reason."""
RETRY = 1.0, 3.0
"""Seconds after which a larger team is tried: at least, and at most after a trial that lost much time."""
DOUBT = 3.0, 60.0
"""Seconds for which slow runs are not looked into again after a smaller team lost: the first time, and at most."""
_GAIN = 0.95  # of the other's time: a team that takes more has not won
_LAST = 3  # runs, the last of a trial, that decide
_TRIAL = 10  # runs of a trial at most: threads that slept may begin on one processor, and part only after some runs
_TRIAL_SECONDS = 2e-3  # of a trial at least
_HOPELESS = 3.0  # times what the other team takes: a first run beyond that ends a trial
_STALL = 20e-3  # seconds that a single slow run must lose to be looked into, where otherwise two are needed
_REGAINED = 10.0  # times the seconds that a trial lost: until the next one
_WINDOW = 16  # runs, and at least so many seconds, after which slow runs are counted anew
_WINDOW_SECONDS = 0.25
_FEW = 2  # threads: there is one smaller team, and nothing to measure
_ASLEEP = 5e-3  # seconds in which threads of a team that has nothing to do fall asleep


@dataclass(slots=True)
class Window:
    """The runs of the last moments."""

    count: int = 0
    """How many there were."""
    seconds: float = 0.0
    """Their time."""
    slow: int = 0
    """How many were slow."""

    @property
    def mean(self) -> float:
        """Seconds of a run on average."""
        return self.seconds / self.count if self.count else 0.0


@dataclass(slots=True)
class Trial:
    """A team on trial."""

    before: int
    """The threads of the team that it is compared with."""
    seconds: float
    """What a run of that team took."""
    times: list[float] = field(default_factory=list)
    """Seconds of the runs so far."""

    @property
    def is_hopeless(self) -> bool:
        """Whether the last run says enough."""
        return self.times[-1] > (_HOPELESS if len(self.times) == 1 else SLOW) * self.seconds

    @property
    def typical(self) -> float:
        """Seconds of one of the last runs."""
        return median(self.times[1:][-_LAST:])

    @property
    def is_won(self) -> bool:
        """Whether the team on trial is faster, as far as is known."""
        is_known = len(self.times) > _LAST and sum(self.times) >= _TRIAL_SECONDS
        return is_known and not self.is_hopeless and self.typical < _GAIN * self.seconds

    @property
    def is_over(self) -> bool:
        """Whether the trial is decided."""
        is_long = len(self.times) >= _TRIAL and sum(self.times) >= _TRIAL_SECONDS
        return self.is_hopeless or self.is_won or is_long


class AdaptiveTeam:
    """The number of threads of a program's runs; several threads may note runs at once."""

    def __init__(
        self,
        most: int,
        free: Callable[[int], int],
        *,
        expected: float | None = None,
        start: int | None = None,
        clock: Clock = clock,
    ) -> None:
        """Begin with `start` threads, or with `most`.

        Args:
            most: the largest team.
            free: what tells how many threads of so many would run now.
            expected: seconds that a run of the first team is predicted to take; None if nothing is known.
            start: threads of the first team.
            clock: what tells the time in seconds.
        """
        self.most = max(1, most)
        """The threads of the largest team."""
        self.threads = min(self.most, start or self.most)
        """The threads of the next run."""
        self._free, self._clock = free, clock
        self._usual: dict[int, float] = {} if expected is None else {self.threads: expected}
        self._window, self._is_first = Window(), True
        self._trial: Trial | None = None
        self._doubt = DOUBT[0]
        self._retry = clock() + RETRY[0]
        self._quiet = self._looked = float("-inf")
        self._lock = ForkResetLock()

    def note(self, threads: int, seconds: float) -> None:
        """Note that a run on so many threads took so long; `threads` may be another number afterwards."""
        if self.most == 1:
            return
        with self._lock:
            if threads != self.threads:
                return
            if self._trial is not None:
                self._note_trial(self._trial, seconds)
            elif self._is_first:
                self._is_first = False  # it makes memory and wakes threads
            else:
                self._note(seconds)

    def keep(self, threads: int) -> int:
        """Use so many threads from now on, whatever runs take; returns the number."""
        with self._lock:
            self.threads, self._trial = threads, None
            self._quiet = self._looked = self._retry = float("inf")
        return threads

    def _note(self, seconds: float) -> None:
        """A run of a team that is not on trial."""
        window, usual = self._window, self._usual.get(self.threads, float("inf"))
        window.count += 1
        window.seconds += seconds
        if seconds > SLOW * usual:
            window.slow += 1
            if (window.slow > 1 or seconds > usual + _STALL) and window.mean > LOST * usual:
                self._try_fewer()
                return
        if self.threads < self.most and self._clock() >= self._retry:
            self._try_more()
        elif window.count >= _WINDOW and window.seconds >= _WINDOW_SECONDS:
            self._usual[self.threads] = min(usual, window.mean)
            self._window = Window()

    def _try_fewer(self) -> None:
        """Shrink the team to those that run, or, if all of them seem to, try half of it."""
        mean, self._window, now = self._window.mean, Window(), self._clock()
        if self.threads == 1 or now < self._looked + RETRY[0]:
            return
        self._looked = now
        free = max(1, self._free(self.threads))
        if free < self.threads:
            self._usual.pop(free, None)
            self._is_first = True
            self._go_on(free)
        elif now >= self._quiet:
            self._begin_trial(self.threads // 2, mean)

    def _try_more(self) -> None:
        mean, self._window = self._window.mean, Window()
        free = min(self.most, self._free(self.most))
        if free > self.threads:
            self._begin_trial(free, mean)
        else:
            self._postpone()

    def _postpone(self, lost: float = 0.0) -> None:
        """Try a larger team later, and the later the more seconds the last trial lost."""
        self._retry = self._clock() + min(max(RETRY[0], _REGAINED * lost), RETRY[1])

    def _go_on(self, threads: int) -> None:
        """Keep a team of so many, until it is time to try a larger one."""
        self.threads = threads
        self._postpone()

    def _begin_trial(self, threads: int, mean: float) -> None:
        self._trial, self.threads = Trial(self.threads, mean), threads

    def _note_trial(self, trial: Trial, seconds: float) -> None:
        trial.times.append(seconds)
        if not trial.is_over:
            return
        self._trial, self._window = None, Window()
        tried, shrinks = self.threads, self.threads < trial.before
        if trial.is_won:
            self._usual[tried] = trial.typical
            self._doubt = DOUBT[0]
            self._go_on(tried)
            return
        self.threads = trial.before
        # Neither team is faster: what runs take now is what they take, and to expect less was wrong.
        self._usual[trial.before] = trial.seconds
        if shrinks:
            self._quiet, self._doubt = self._clock() + self._doubt, min(2 * self._doubt, DOUBT[1])
        else:
            self._postpone(sum(trial.times) - len(trial.times) * trial.seconds)


def quota_threads(most: int) -> int:
    """How many threads of `most` the quotas of control groups leave."""
    quota = cpu_quota() if most > 1 else None
    return most if quota is None else max(1, min(most, round(quota)))


def free_threads(most: int) -> int:
    """How many threads of `most` would run now: of two or fewer, as many as quotas leave, since runs tell the rest."""
    allowed = quota_threads(most)
    if allowed <= _FEW:
        return allowed
    time.sleep(_ASLEEP)
    return min(allowed, recent_processors().threads)
