"""The thread that extends leases."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from ._backoff import LONG, Backoff
from ._link import Lease, is_unknown
from ._run import Attempt, Run, batches, log
from .errors import Invalid, TaskerError, Unavailable

LEAST_TIMEOUT = 2.0  # a shorter one would cut off slow connections for ever
STOP_TIME = 0.5  # seconds for a request under way at the end
MOST_SPLITS = 10  # of a heartbeat that is refused because of one lease


class Heartbeats:
    """Extends all leases at the interval of the server, in a thread that handlers cannot block."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="tasker-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """Stops the thread. A request under way is not awaited for long."""
        self._stopped.set()
        self._run.renew.set()
        await asyncio.to_thread(self._thread.join, STOP_TIME)

    def _loop(self) -> None:
        backoff = Backoff()
        while self._pause():
            while error := self._safe_beat():
                # A long Retry-After would let the leases end.
                rest = max(backoff.step(LONG), min(error.retry_after, LONG))
                if self._stopped.wait(min(rest, self._first_lapse(LONG))):
                    return
            backoff.reset()

    def _pause(self) -> bool:
        """Waits until the next heartbeat is due. It returns False if the thread is to stop."""
        self._run.renew.wait(self._run.registration.interval)
        self._run.renew.clear()
        return not self._stopped.is_set()

    def _safe_beat(self) -> TaskerError | None:
        """Sends one heartbeat. No answer, whatever its form, may end the thread."""
        try:
            return self._beat()
        except Exception:
            log.exception("cannot use the answer to a heartbeat")
            return Unavailable("the answer has another form")

    def _beat(self) -> TaskerError | None:
        """Sends one heartbeat, in batches. It returns the first error."""
        with self._run.lock:
            worker = self._run.registration.worker_uuid
            leases = [a.lease for a in self._run.newest.values() if not a.dropped]
        errors = [self._extend_parts(worker, batch, [MOST_SPLITS]) for batch in batches(leases) or [[]]]
        return next((e for e in errors if e), None)

    def _extend_parts(self, worker: str, leases: list[Lease], splits: list[int]) -> TaskerError | None:
        """Extends leases. It splits a refused request, so that one lease does not cost the others."""
        error = self._extend(worker, leases)
        if not isinstance(error, Invalid) or len(leases) < 2 or not splits[0]:
            return error
        splits[0] -= 1
        half = len(leases) // 2
        first = self._extend_parts(worker, leases[:half], splits)
        return self._extend_parts(worker, leases[half:], splits) or first

    def _extend(self, worker: str, leases: list[Lease]) -> TaskerError | None:
        run, sent = self._run, time.monotonic()
        timeout = self._first_lapse(max(run.registration.interval, LEAST_TIMEOUT))
        try:
            answer = run.link.heartbeat(worker, leases, timeout)
        except TaskerError as error:
            if self._stopped.is_set():
                return None
            run.warn("heartbeat with %d leases failed, retrying: %s", error, len(leases))
            if is_unknown(error, worker):
                asyncio.run_coroutine_threadsafe(run.register_again(worker), run.loop)
            self._lapse()
            return error
        except RuntimeError:  # the client was closed while the worker ended
            return None
        run.succeeded(sent)
        self._extended(worker, leases, answer, sent)
        return None

    def _extended(self, worker: str, leases: list[Lease], answer: dict[str, Any], sent: float) -> None:
        """Applies an answer. An unchanged expiry means that the lease was not extended."""
        run = self._run
        ends = {e["step_uuid"]: e["lease_expires_at"] for e in answer["extended"]}
        lost = set(answer["lost"])
        with run.lock:
            for lease in leases:
                attempt = run.attempts.get(lease["lease_token"])
                if attempt is None:
                    continue
                end = ends.get(attempt.step_uuid)
                if attempt.step_uuid in lost:
                    run.lose(attempt)
                elif end and end != attempt.expires:
                    attempt.lapses, attempt.expires = sent + run.registration.lease, end
        if answer["drain"] and worker == run.registration.worker_uuid:
            run.loop.call_soon_threadsafe(run.stop.set)

    def _first_lapse(self, most: float) -> float:
        """Returns the seconds until the first lease ends, at most `most`."""
        now = time.monotonic()
        with self._run.lock:
            ends = [a.lapses - now for a in self._run.attempts.values() if _counts(a) and a.lapses > now]
        return min([most, *ends])

    def _lapse(self) -> None:
        """Cancels the attempts whose lease ended: another worker may have claimed the step."""
        now = time.monotonic()
        with self._run.lock:
            for attempt in self._run.attempts.values():
                if _counts(attempt) and attempt.lapses <= now:
                    self._run.lose(attempt)


def _counts(attempt: Attempt) -> bool:
    return not attempt.finished and not attempt.dropped
