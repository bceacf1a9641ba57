"""The loop that claims steps."""

from __future__ import annotations

import asyncio
import time

from ._backoff import FIRST, Backoff
from ._link import is_unknown
from ._run import MAX_BATCH, Run
from .errors import TaskerError, TooLarge

WAIT = 20.0  # seconds that a claim waits for steps


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
        worker, sent = run.registration.worker_uuid, time.monotonic()
        steps = []
        try:
            steps = await run.link.claim(worker, slots, WAIT)
        except TaskerError as error:
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
            early = not steps and time.monotonic() - sent < WAIT / 2
            rest = FIRST if early else 0.0
            if early:
                run.renew.set()
        finally:
            run.start(steps, slots, sent)
        if rest:
            await asyncio.sleep(rest)
