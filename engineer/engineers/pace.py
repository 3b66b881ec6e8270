"""Requests that keep a distance from each other, over all calls and threads that share a pace."""

import threading
import time
from collections.abc import Callable

LONGEST_WAIT = 30.0
"""The longest wait for the next request, in seconds; a slower pace is refused."""


class Pace:
    """Spaces requests evenly.

    Args:
        requests_per_minute: the most that are sent.
        sleep: waits for a number of seconds.
        clock: returns the current time in seconds.

    Raises:
        ValueError: the rate is not positive, or so low that requests are more than `LONGEST_WAIT`
            apart.
    """

    def __init__(
        self,
        requests_per_minute: float,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not requests_per_minute > 0.0:
            raise ValueError(f"requests_per_minute must be above 0, got {requests_per_minute:g}")
        self._interval = 60.0 / requests_per_minute
        if self._interval > LONGEST_WAIT:
            raise ValueError(
                f"requests_per_minute: got {requests_per_minute:g}, which needs waits of"
                f" {self._interval:g} s; at most {LONGEST_WAIT:g} s are allowed"
            )
        self._rate, self._sleep, self._clock = requests_per_minute, sleep, clock
        self._lock = threading.Lock()
        self._next_place = float("-inf")

    def wait(self) -> None:
        """Take the next free place and wait for it.

        Raises:
            TimeoutError: the next place is further away than `LONGEST_WAIT`; it stays free.
        """
        with self._lock:
            now = self._clock()
            wait = max(0.0, self._next_place - now)
            if wait > LONGEST_WAIT + 1e-6:
                raise TimeoutError(
                    f"{self._rate:g} requests per minute leave no place within {LONGEST_WAIT:g} s"
                )
            self._next_place = now + wait + self._interval
        if wait > 0.0:
            self._sleep(wait)
