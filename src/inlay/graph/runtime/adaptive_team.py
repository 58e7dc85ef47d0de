"""`AdaptiveTeam`: chooses the number of threads of a program's next run from the times of past runs.

    team = AdaptiveTeam(most=2, free=lambda most: 2, expected=22e-3)
    team.note(team.threads, seconds)        after each run

The threads of a team meet at a barrier after each kernel. If one of them has no processor, all others wait for it: on
two processors that are half taken by other programs, a run may take ten times as long as on one thread.

- **Fewer threads.** A run is slow if it takes twice the expected time, or twice the time of earlier runs. Slow runs
  make the team call `free`, which returns how many threads would run now. If these are fewer, the team shrinks at once.
  Else a trial follows: some runs on half of the threads, after which the faster team stays. It finds losses that a
  short measurement of the processors does not show.
- **More threads.** A team that was made smaller is compared with a larger one every few seconds, up to the number that
  `free` returns. A larger team that is clearly slower is given up after one run.

`AdaptiveTeam` reads the time only through `clock`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from inlay.forks import ForkResetLock
from inlay.measure.interleaved import Clock, clock
from inlay.measure.processors import cpu_quota, recent_processors

SLOW = 2.0
"""Multiple of the expected time from which on a run is slow."""
LOST = 1.5
"""Multiple of the expected time that the mean of a window must exceed before the reason is looked into."""
RETRY = 1.0, 3.0
"""Seconds until a larger team is tried: the least, and the most, after a trial that lost much time."""
DOUBT = 3.0, 60.0
"""Seconds for which no smaller team is tried after one has lost: at first, and the most, as they double each time."""
_WIN_RATIO = 0.95  # a team wins if its time is below this multiple of the other team's
_DECIDING_RUNS = 3  # last runs of a trial, whose median decides
_TRIAL_RUNS = 10  # most runs of a trial: threads may begin on one processor and spread only after some runs
_TRIAL_SECONDS = 2e-3  # least time of a trial
_LOSS_RATIO = 3.0  # multiple of the other team's time at which the first run ends a trial
_STALL_SECONDS = 20e-3  # excess time of one slow run that is looked into; with less, it takes two slow runs
_RETRY_FACTOR = 10.0  # seconds until the next trial of a larger team, for each second that the last one lost
_WINDOW_RUNS = 16  # least runs of a window
_WINDOW_SECONDS = 0.25  # least time of a window
_SMALL_TEAM = 2  # a team of two has one smaller team, so its trial needs no measurement of the processors
_SLEEP_SECONDS = 5e-3  # time in which the threads of an idle team fall asleep


@dataclass(slots=True)
class TimingWindow:
    """The runs since slow runs were last counted from zero."""

    count: int = 0
    """Number of runs."""
    seconds: float = 0.0
    """Sum of their times in seconds."""
    slow: int = 0
    """Number of slow runs."""

    @property
    def mean(self) -> float:
        """Mean time of a run in seconds."""
        return self.seconds / self.count if self.count else 0.0


@dataclass(slots=True)
class TeamTrial:
    """A comparison of a team with another one."""

    before: int
    """Number of threads of the team that was used before."""
    seconds: float
    """Mean time of that team's runs in seconds."""
    times: list[float] = field(default_factory=list)
    """Times of the runs of the team on trial, in seconds."""

    @property
    def is_hopeless(self) -> bool:
        """Return whether the last run is so slow that the team on trial has lost."""
        return self.times[-1] > (_LOSS_RATIO if len(self.times) == 1 else SLOW) * self.seconds

    @property
    def typical(self) -> float:
        """Median time of the last runs in seconds."""
        from statistics import median  # loads fractions and decimal, which sessions start without

        return median(self.times[1:][-_DECIDING_RUNS:])

    @property
    def is_won(self) -> bool:
        """Return whether enough runs show that the team on trial is faster."""
        is_known = len(self.times) > _DECIDING_RUNS and sum(self.times) >= _TRIAL_SECONDS
        return is_known and not self.is_hopeless and self.typical < _WIN_RATIO * self.seconds

    @property
    def is_over(self) -> bool:
        """Return whether the trial is decided, or long enough."""
        is_long = len(self.times) >= _TRIAL_RUNS and sum(self.times) >= _TRIAL_SECONDS
        return self.is_hopeless or self.is_won or is_long


class AdaptiveTeam:
    """The number of threads for the runs of one program; several threads may report runs at once."""

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
            most: number of threads of the largest team.
            free: returns how many threads of a given number would run now.
            expected: predicted seconds of a run of the first team; None if there is no prediction.
            start: number of threads of the first team.
            clock: returns the time in seconds.
        """
        self.most = max(1, most)
        """Number of threads of the largest team."""
        self.threads = min(self.most, start or self.most)
        """Number of threads of the next run."""
        self._free, self._clock = free, clock
        self._expected: dict[int, float] = {} if expected is None else {self.threads: expected}
        self._window, self._is_first = TimingWindow(), True
        self._trial: TeamTrial | None = None
        self._doubt = DOUBT[0]
        self._retry = clock() + RETRY[0]
        self._shrink_after = self._last_look = float("-inf")
        self._lock = ForkResetLock()

    def note(self, threads: int, seconds: float) -> None:
        """Record the time of a run on `threads` threads; this may change the number of threads of the next run."""
        if self.most == 1:
            return
        with self._lock:
            if threads != self.threads:
                return
            if self._trial is not None:
                self._note_trial(self._trial, seconds)
            elif self._is_first:
                self._is_first = False  # the first run is slower: it touches new memory and wakes threads
            else:
                self._note(seconds)

    def fix_threads(self, threads: int) -> int:
        """Use this number of threads for all further runs, and return it."""
        with self._lock:
            self.threads, self._trial = threads, None
            self._shrink_after = self._last_look = self._retry = float("inf")
        return threads

    def _note(self, seconds: float) -> None:
        """Record the time of a run while no trial is going on."""
        window, usual = self._window, self._expected.get(self.threads, float("inf"))
        window.count += 1
        window.seconds += seconds
        if seconds > SLOW * usual:
            window.slow += 1
            if (window.slow > 1 or seconds > usual + _STALL_SECONDS) and window.mean > LOST * usual:
                self._try_fewer()
                return
        if self.threads < self.most and self._clock() >= self._retry:
            self._try_more()
        elif window.count >= _WINDOW_RUNS and window.seconds >= _WINDOW_SECONDS:
            self._expected[self.threads] = min(usual, window.mean)
            self._window = TimingWindow()

    def _try_fewer(self) -> None:
        """Shrink the team to the threads that run now; if all seem to run, begin a trial of half the team."""
        mean, self._window, now = self._window.mean, TimingWindow(), self._clock()
        if self.threads == 1 or now < self._last_look + RETRY[0]:
            return
        self._last_look = now
        free = max(1, self._free(self.threads))
        if free < self.threads:
            self._expected.pop(free, None)
            self._is_first = True
            self._set_threads(free)
        elif now >= self._shrink_after:
            self._begin_trial(self.threads // 2, mean)

    def _try_more(self) -> None:
        """Begin a trial of the largest team whose threads would all run now, if that is larger."""
        mean, self._window = self._window.mean, TimingWindow()
        free = min(self.most, self._free(self.most))
        if free > self.threads:
            self._begin_trial(free, mean)
        else:
            self._schedule_retry()

    def _schedule_retry(self, lost: float = 0.0) -> None:
        """Set the time for the next trial of a larger team: the later, the more seconds the last one lost."""
        self._retry = self._clock() + min(max(RETRY[0], _RETRY_FACTOR * lost), RETRY[1])

    def _set_threads(self, threads: int) -> None:
        """Use a team of this size until it is time to try a larger one."""
        self.threads = threads
        self._schedule_retry()

    def _begin_trial(self, threads: int, mean: float) -> None:
        self._trial, self.threads = TeamTrial(self.threads, mean), threads

    def _note_trial(self, trial: TeamTrial, seconds: float) -> None:
        """Record the time of a run of the team on trial; if that decides the trial, use the winner."""
        trial.times.append(seconds)
        if not trial.is_over:
            return
        self._trial, self._window = None, TimingWindow()
        tried, shrinks = self.threads, self.threads < trial.before
        if trial.is_won:
            self._expected[tried] = trial.typical
            self._doubt = DOUBT[0]
            self._set_threads(tried)
            return
        self.threads = trial.before
        # Neither team is faster than the measured time, so this time is what to expect from now on.
        self._expected[trial.before] = trial.seconds
        if shrinks:
            self._shrink_after, self._doubt = self._clock() + self._doubt, min(2 * self._doubt, DOUBT[1])
        else:
            self._schedule_retry(sum(trial.times) - len(trial.times) * trial.seconds)


def quota_threads(most: int) -> int:
    """Return how many threads, of at most `most`, the CPU quotas of control groups allow."""
    quota = cpu_quota() if most > 1 else None
    return most if quota is None else max(1, min(most, round(quota)))


def free_threads(most: int) -> int:
    """Return how many threads, of at most `most`, would run now.

    Of one or two threads, only the quotas are read: a trial finds out the rest. Of more, the free processors are
    measured.
    """
    allowed = quota_threads(most)
    if allowed <= _SMALL_TEAM:
        return allowed
    time.sleep(_SLEEP_SECONDS)
    return min(allowed, recent_processors().threads)
