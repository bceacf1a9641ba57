"""The loop that claims steps."""

from __future__ import annotations

import asyncio
import time

from ._backoff import FIRST, Backoff
from ._link import is_unknown
from ._run import MAX_BATCH, Run
from .errors import TaskerError, TooLarge

MAX_WAIT = 20.0  # seconds that a claim waits for steps
LEAST_INTERVAL = 2.0  # shorter heartbeat intervals would need too many claims


class Window:
    """The size of a request: halved after one that was too large, doubled after each success."""

    def __init__(self, most: int = MAX_BATCH) -> None:
        self.most = self.size = most

    def shrink(self, failed: int) -> None:
        self.size = max(1, min(self.size, failed // 2))

    def grow(self) -> None:
        self.size = min(2 * self.size, self.most)


async def claim_loop(run: Run) -> None:
    """Claims steps whenever slots are free, until the run drains."""
    backoff, window = Backoff(), Window()
    while not run.draining:
        slots = min(run.free(), window.size)
        if slots <= 0:
            run.slot.clear()
            await run.slot.wait()
            continue
        run.reserved += slots
        worker, sent, wait = run.registration.worker_uuid, time.monotonic(), _wait(run)
        steps = []
        try:
            steps = await run.link.claim(worker, slots, wait)
        except TaskerError as error:
            run.claimed_at = 0.0
            run.warn("claim of %d steps failed, retrying: %s", error, slots)
            if is_unknown(error, worker):
                await run.register_again(worker)
            if isinstance(error, TooLarge):
                window.shrink(slots)
            rest = backoff.after(error)
        else:
            run.succeeded(sent)
            backoff.reset()
            window.grow()
            # No steps long before the end of the wait: the worker is to drain, or the server ends.
            early = not steps and time.monotonic() - sent < wait / 2
            rest = FIRST if early else 0.0
            if early:
                run.renew.set()
        finally:
            run.start(steps, slots, sent)
        if rest:
            await asyncio.sleep(rest)


def _wait(run: Run) -> float:
    """Returns how long a claim may wait. One that counts as a heartbeat ends before the next is due."""
    interval = run.registration.interval
    if not run.registration.claim_is_heartbeat or interval < LEAST_INTERVAL:
        return MAX_WAIT
    run.claimed_at = time.monotonic()
    return min(MAX_WAIT, interval * 0.9)
