"""Delays between retries, in seconds."""

from __future__ import annotations

import random

from .errors import TaskerError

FIRST = 0.1
LONG = 5.0
LONGEST = 60.0  # most that a Retry-After counts, and the limit for a rejected outcome


class Backoff:
    """Computes delays that double with each failure, shortened by up to a half at random."""

    def __init__(self) -> None:
        self._next = 0.0

    def step(self, limit: float = LONG) -> float:
        """Returns the next delay, at most limit."""
        self._next = min(max(2 * self._next, FIRST), limit)
        return self._next * random.uniform(0.5, 1.0)

    def after(self, error: TaskerError) -> float:
        """Returns the next delay, or the longer one that the server requested."""
        return max(self.step(), min(error.retry_after, LONGEST))

    def reset(self) -> None:
        self._next = 0.0
