"""`AdaptiveTeam`: how many threads the next run of a program uses, from how long its runs take.

    team = AdaptiveTeam(most=2, expected=22e-3, free=lambda: 2)
    team.note(team.threads, seconds)        after each run

A team of threads that meets at barriers waits for a thread that does not run, so on two processors that together
compute as fast as one a run takes up to ten times what it takes on one thread.

- **Fewer threads.** Where runs take longer than expected, or than they took before, `free` tells how many processors
  really run threads now. If these are fewer, the team shrinks at once. If they are not, some runs on half of the
  threads are compared with those before: the processors may be taken in a way that a short measurement does not see.
- **More threads.** A team that was made smaller is compared with a larger one every few seconds, if processors are free
  again. A larger team that loses is given up after one slow run.

Nothing here measures time but through `clock`, and nothing is read of the machine but through `free`.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

Clock = Callable[[], float]

SLOW = 2.0
"""Times the reference from which on a run counts as slow."""
LOST = 1.5
"""Times the reference that runs take on average where it is worth to look for the reason."""
RETRY = 1.0, 4.0
"""Seconds after which a larger team is tried: for the first time, and at most after it lost several times."""
DOUBT = 10.0, 160.0
"""Seconds for which slow runs are not looked into again after a smaller team lost: the first time, and at most."""
_GAIN = 0.95  # of the other's time: a team that takes more has not won
_TRIAL = 4  # runs of a trial, the first of which does not count
_TRIAL_SECONDS = 2e-3  # and at least as long
_HOPELESS = 4.0  # times what the other team takes: a first run beyond that ends a trial
_STALL = 20e-3  # seconds that a single slow run must lose to be looked into, where otherwise two are needed
_WINDOW = 16  # runs, and at least so many seconds, after which slow runs are counted anew
_WINDOW_SECONDS = 0.25


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
    def is_over(self) -> bool:
        """Whether there were enough runs."""
        return self.is_hopeless or (len(self.times) >= _TRIAL and sum(self.times) >= _TRIAL_SECONDS)

    @property
    def is_won(self) -> bool:
        """Whether the team on trial is faster."""
        return not self.is_hopeless and median(self.times[1:]) < _GAIN * self.seconds


class AdaptiveTeam:
    """The number of threads of a program's runs; several threads may note runs at once."""

    def __init__(
        self,
        most: int,
        free: Callable[[], int],
        *,
        expected: float | None = None,
        start: int | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """Begin with `start` threads, or with `most`.

        Args:
            most: the largest team.
            free: what measures how many threads would really run now.
            expected: seconds that a run of the first team is predicted to take; None if nothing is known.
            start: threads of the first team.
            clock: what tells the time in seconds.
        """
        self.most = max(1, most)
        """The threads of the largest team."""
        self.threads = min(self.most, start or self.most)
        """The threads of the next run."""
        self._free, self._clock = free, clock
        self._best: dict[int, float] = {} if expected is None else {self.threads: expected}
        self._window, self._runs = Window(), 0
        self._trial: Trial | None = None
        self._wait, self._doubt = RETRY[0], DOUBT[0]
        self._retry = clock() + self._wait
        self._quiet = 0.0
        self._lock = threading.Lock()

    def note(self, threads: int, seconds: float) -> None:
        """Note that a run on so many threads took so long; `threads` may be another number afterwards."""
        if self.most == 1 or threads != self.threads:
            return
        with self._lock:
            if threads != self.threads:
                return
            if self._trial is not None:
                self._note_trial(self._trial, seconds)
            else:
                self._note(seconds)

    def keep(self, threads: int) -> int:
        """Use so many threads from now on, whatever runs take; returns the number."""
        with self._lock:
            self.threads = self.most = threads
            self._trial = None
            self._quiet = self._retry = float("inf")
        return threads

    def _note(self, seconds: float) -> None:
        """A run of a team that is not on trial; the first one makes memory and wakes threads, and does not count."""
        self._runs += 1
        if self._runs == 1:
            return
        window, reference = self._window, self._best.get(self.threads, seconds)
        window.count += 1
        window.seconds += seconds
        self._best[self.threads] = min(reference, seconds)
        if seconds > SLOW * reference:
            window.slow += 1
            if (window.slow > 1 or seconds > reference + _STALL) and window.mean > LOST * reference:
                self._look_into()
                return
        if self.threads < self.most and self._clock() >= self._retry:
            self._try_more()
        elif window.count >= _WINDOW and window.seconds >= _WINDOW_SECONDS:
            self._window = Window()

    def _look_into(self) -> None:
        """Find out why runs are slow."""
        mean, self._window = self._window.mean, Window()
        if self.threads == 1 or self._clock() < self._quiet:
            return
        free = self._free()
        if free < self.threads:
            self._go_on(max(1, free))
        else:
            self._begin_trial(max(1, self.threads // 2), mean)

    def _try_more(self) -> None:
        """Try a larger team, if there are processors for it."""
        mean, self._window = self._window.mean, Window()
        free = min(self.most, self._free())
        if free > self.threads:
            self._begin_trial(free, mean)
        else:
            self._retry = self._clock() + self._next_wait()

    def _next_wait(self) -> float:
        self._wait = min(2 * self._wait, RETRY[1])
        return self._wait / 2

    def _begin_trial(self, threads: int, mean: float) -> None:
        self._trial, self.threads = Trial(self.threads, mean), threads

    def _note_trial(self, trial: Trial, seconds: float) -> None:
        trial.times.append(seconds)
        if not trial.is_over:
            return
        self._trial = None
        if trial.is_won:
            self._best[self.threads] = min(trial.times)
            self._go_on(self.threads)
            return
        if trial.before > self.threads:
            # No team is faster: what runs take now is what they take. What was expected was too little.
            self._best[trial.before] = trial.seconds
            self._quiet, self._doubt = self._clock() + self._doubt, min(2 * self._doubt, DOUBT[1])
            self.threads, self._window = trial.before, Window()
        else:
            self.threads, self._window = trial.before, Window()
            self._retry = self._clock() + self._next_wait()

    def _go_on(self, threads: int) -> None:
        """Keep a team of so many, until it is time to try a larger one."""
        self.threads, self._window, self._runs = threads, Window(), 0
        self._wait = RETRY[0]
        self._retry = self._clock() + self._next_wait()
