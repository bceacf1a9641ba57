"""The loops that report outcomes and send unanswered ones again."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

from . import _backoff
from ._backoff import LONG, LONGEST, Backoff
from ._claim import Window
from ._handler import Outcome
from ._link import TIMEOUT, is_unknown
from ._run import MAX_BATCH, Attempt, Run, log
from .context import log_fields
from .errors import Invalid, NotSupported, TaskerError, TooLarge, Unavailable

MAX_BYTES = 1 << 20  # of a report, unless a single outcome is larger
SLOW = 10.0  # seconds after which a report with several outcomes counts as too large
LOST_TIMEOUT = 60.0  # how long an outcome with a lost lease is sent again
GATHER_SHARE = 8  # a report waits for more outcomes for this share of the duration of the last
MAX_GATHER = 0.01
SETTLED = "the attempt was failed"  # in the message of a rejection that is recorded

# Reactions to a rejection. An answer names steps, not attempts: of several, the highest counts.
DROP, REVISE, REPEAT = range(3)


class Reporter:
    """Reports outcomes, one request at a time, and claims steps with the same request.

    The next report has all outcomes that finish meanwhile. Outcomes of a failed report are sent
    again apart from new ones, in batches that are halved after each failure (unsure). An outcome
    that fails alone is always sent alone from then on (lone), so that it does not delay others.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.unsure = Resend(self, MAX_BATCH)
        self.lone = Resend(self, 1)
        self._window = Window()
        self._troubled = False  # the last report failed: the next one claims nothing
        self._backoff = Backoff()

    async def loop(self) -> None:
        """Reports until the run closes and all outcomes are sent once."""
        run = self.run
        while True:
            batch = fitting(run.queue, self._window.size)
            del run.queue[: len(batch)]
            if batch:
                await self._send(batch)
            elif run.closing.is_set():
                return
            else:
                run.result.clear()
                await run.result.wait()

    async def _send(self, batch: list[Attempt]) -> None:
        run = self.run
        slots = 0
        if not run.draining and not self._troubled:
            slots = min(max(run.free() + len(batch), 0), MAX_BATCH)
            run.reserved += slots
        sent = time.monotonic()
        steps: list[dict[str, Any]] = []
        try:
            answer = await self.deliver(batch, slots)
            steps = answer["steps"]
        except TaskerError as error:
            self._troubled = True
            if time.monotonic() - sent > SLOW or refused(error):
                self._window.shrink(len(batch))
                self.unsure.window.shrink(len(batch))
            delay = self._backoff.after(error)
            for attempt in batch:
                attempt.due = time.monotonic() + delay
            self.unsure.add(batch)
            await asyncio.sleep(delay)
            return
        finally:
            run.start(steps, slots, sent)
        self._troubled = False
        self._window.grow()
        self._backoff.reset()
        self.unsure.add(self.answered(batch, answer))
        if steps:
            await self._gather(min((time.monotonic() - sent) / GATHER_SHARE, MAX_GATHER))

    async def _gather(self, most: float) -> None:
        """Waits briefly while handlers run: a small report costs the server nearly as much as a large one."""
        end = time.monotonic() + most
        while self.run.running and time.monotonic() < end:  # noqa: ASYNC110 (an event per handler costs more)
            await asyncio.sleep(0.001)

    async def deliver(self, batch: list[Attempt], slots: int = 0, timeout: float = TIMEOUT) -> dict[str, Any]:
        """Sends one report. It registers the worker again if the server does not know it."""
        run = self.run
        worker, sent = run.registration.worker_uuid, time.monotonic()
        try:
            answer = await run.link.report(worker, [a.encoded for a in batch], slots, timeout)
        except TaskerError as error:
            run.warn("report of %d outcomes failed, retrying: %s", error, len(batch))
            if is_unknown(error, worker):
                await run.register_again(worker)
            raise
        run.succeeded(sent)
        return answer

    def answered(self, batch: list[Attempt], answer: dict[str, Any]) -> list[Attempt]:
        """Settles the attempts that the answer settles. It returns the others, to be sent again."""
        rejected: dict[str, dict[str, Any]] = {}
        for r in answer["rejected"]:
            held = rejected.get(r["step_uuid"])
            if held is None or reaction(r) > reaction(held):
                rejected[r["step_uuid"]] = r
        accepted = set(answer["accepted"])
        again = []
        for attempt in batch:
            rejection = rejected.get(attempt.step_uuid)
            if rejection is None and attempt.step_uuid in accepted:
                self.run.settle(attempt)
            elif rejection is None or reaction(rejection) == REPEAT:
                postpone(attempt, LONG)
                again.append(attempt)
            elif reaction(rejection) == REVISE:
                revise(attempt, rejection)
                again.append(attempt)
            else:
                _log(attempt, "outcome rejected: %s: %s", rejection["code"], rejection["message"])
                self.run.settle(attempt)
        return again


class Resend:
    """Outcomes to be sent again, in batches of at most `most`."""

    def __init__(self, reporter: Reporter, most: int) -> None:
        self.reporter = reporter
        self.window = Window(most)
        self._list: list[Attempt] = []
        self._ready = asyncio.Event()

    def add(self, attempts: list[Attempt]) -> None:
        """Adds outcomes. It drops one whose lease was lost long ago: its report may have arrived."""
        now = time.monotonic()
        for attempt in attempts:
            if attempt.lost and attempt.until and now > attempt.until:
                _log(attempt, "dropped an outcome: its lease is lost and its report was not answered")
                self.reporter.run.settle(attempt)
                continue
            if attempt.lost and not attempt.until:
                attempt.until = now + LOST_TIMEOUT
            self._list.append(attempt)
        if self._list:
            self._ready.set()

    async def loop(self, earlier: asyncio.Task[None]) -> None:
        """Sends outcomes again until the loops before it have ended and all are settled."""
        earlier.add_done_callback(lambda _: self._ready.set())
        backoff = Backoff()
        while True:
            batch, wait = self._due()
            if batch:
                rest = await self._send(batch, backoff)
                await asyncio.sleep(rest)
            elif not self._list and earlier.done():
                return
            else:
                self._ready.clear()
                try:
                    await asyncio.wait_for(self._ready.wait(), wait)
                except asyncio.TimeoutError:
                    pass

    def _due(self) -> tuple[list[Attempt], float]:
        """Takes the first outcomes that are due. If there are none, it returns when one is."""
        now = time.monotonic()
        due = fitting([a for a in self._list if a.due <= now], self.window.size)
        chosen = set(map(id, due))
        self._list = [a for a in self._list if id(a) not in chosen]
        return due, min([a.due - now for a in self._list], default=LONGEST)

    async def _send(self, batch: list[Attempt], backoff: Backoff) -> float:
        """Sends a batch and returns the delay before the next one."""
        began = time.monotonic()
        single = len(batch) == 1
        try:
            answer = await self.reporter.deliver(batch, timeout=TIMEOUT if single else SLOW)
        except TaskerError as error:
            if single:
                self._failed_alone(batch[0], error, time.monotonic() - began)
            else:
                self.window.shrink(len(batch))
                self.add(batch)
            return backoff.after(error)
        backoff.reset()
        self.window.grow()
        self.add(self.reporter.answered(batch, answer))
        return 0.0

    def _failed_alone(self, attempt: Attempt, error: TaskerError, took: float) -> None:
        if isinstance(error, TooLarge):
            shrink_result(attempt, error)
        elif refused(error):
            _log(attempt, "the server refused the report of an outcome; it will be sent again: %s", error)
        limit = LONGEST if refused(error) else LONG
        postpone(attempt, limit, took, min(error.retry_after, LONGEST))
        self.reporter.lone.add([attempt])


def fitting(attempts: list[Attempt], most: int) -> list[Attempt]:
    """Returns as many of the first attempts as fit into one report."""
    size = 0
    for i, attempt in enumerate(attempts):
        size += len(attempt.encoded)
        if i == most or (i and size > MAX_BYTES):
            return attempts[:i]
    return list(attempts)


def reaction(rejection: dict[str, Any]) -> int:
    """Returns DROP, REVISE or REPEAT."""
    if rejection["code"] in (Unavailable.code, "INTERNAL"):
        return REPEAT
    if rejection["code"] in (Invalid.code, TooLarge.code) and SETTLED not in rejection["message"]:
        return REVISE
    return DROP


def refused(error: TaskerError) -> bool:
    """Reports whether the API refused the content of a request, so that sending it again is useless."""
    return isinstance(error, Invalid | TooLarge | NotSupported)


def postpone(attempt: Attempt, limit: float, *least: float) -> None:
    """Delays the next report of an outcome. The delay grows each time up to limit."""
    attempt.due = time.monotonic() + max(attempt.backoff.step(limit), *least, _backoff.FIRST / 2)


def revise(attempt: Attempt, rejection: dict[str, Any]) -> None:
    """Changes an outcome that the server rejects as malformed.

    It removes the optional fields first. A result that cannot be stored becomes a failure. Other
    outcomes stay as they are: a server of another version may not know a field yet.
    """
    outcome, message = attempt.outcome, str(rejection["message"])
    if outcome.metadata:
        outcome.metadata = None
    elif not outcome.success and outcome.error.get("context") is not None:
        outcome.error = {**outcome.error, "context": None}
    elif outcome.success and re.match(r"(results\[\d+\][.:] ?)?result\b", message):
        error = {"message": f"the server rejected the result: {message}", "type": "invalid_result", "retryable": False}
        outcome = Outcome(False, error=error)
    else:
        postpone(attempt, LONGEST)
        _log(attempt, "the server rejected an outcome as malformed; it will be sent again: %s", message)
        return
    attempt.encode(outcome)
    _log(attempt, "outcome rejected as malformed; sending a reduced one: %s", message)


def shrink_result(attempt: Attempt, error: TaskerError) -> None:
    """Reports a failure instead of an outcome that is too large for a report."""
    old = attempt.outcome
    if old.success:
        message = f"result: has {len(old.result)} bytes, which the server refuses: {error}"
        failure = {"message": message, "type": "invalid_result", "retryable": False}
    else:
        failure = {k: v for k, v in old.error.items() if k in ("type", "retryable")}
        failure["message"] = str(old.error["message"])[:1000]
    attempt.encode(Outcome(False, error=failure))


def _log(attempt: Attempt, message: str, *args: Any) -> None:
    log.warning(message, *args, extra=log_fields(attempt.step))
