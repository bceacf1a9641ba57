"""One run of a worker: its slots, attempts and end."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from pydantic import TypeAdapter

from ._backoff import LONG, Backoff
from ._handler import INTERRUPTED, LOST, TIMEOUT, Handler, Outcome, execute
from ._link import Lease, Link, Registration, is_refused_key, is_unknown
from .context import BaseContext, Context, SyncContext, log_fields
from .errors import Invalid, NotSupported, Permanent, StaleLease, StepError, TaskerError, TooLarge

T = TypeVar("T")
log = logging.getLogger("tasker.worker")

TRIES = 5  # of a request of a handler
FINAL = (Invalid, TooLarge, NotSupported, StaleLease)  # sending it again is useless
MAX_BATCH = 500  # leases or outcomes per request; the protocol allows 1000
TIME = TypeAdapter(datetime)
Script = Callable[[dict[str, Any]], "Handler | None"]


class Attempt:
    """A claimed step whose outcome is not settled. The lock of the run guards its fields."""

    def __init__(self, step: dict[str, Any], lapses: float) -> None:
        self.step = step
        self.step_uuid: str = step["step_uuid"]
        self.token: str = step["lease_token"]
        self.lease: Lease = {"step_uuid": self.step_uuid, "lease_token": self.token}
        self.lapses = lapses  # when the lease ends, by the monotonic clock
        self.expires: str = step["lease_expires_at"]
        self.context: BaseContext | None = None  # None if the worker has no such handler
        self.task: asyncio.Task[Outcome] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.finished = False  # the handler returned
        self.dropped = False  # the lease was lost before: the outcome is ignored
        self.outcome = Outcome(False)
        self.encoded = b""
        # The rest is about a finished attempt whose report has no answer.
        self.due = 0.0
        self.backoff = Backoff()
        self.lost = False
        self.until = 0.0  # when a lost outcome is dropped; 0 before it was sent again

    def encode(self, outcome: Outcome) -> None:
        self.outcome, self.encoded = outcome, outcome.encode(self.lease)


class Run:
    """The state that the loops of a worker share.

    All methods run in the event loop, except those that the heartbeat thread calls. An attempt
    occupies a slot from its claim until its report is answered.
    """

    def __init__(
        self, link: Link, spec: dict[str, Any], handlers: dict[str, Handler], script: Script | None = None
    ) -> None:
        """spec is the request of the registration. script returns handlers that are used first, in tests."""
        self.link, self.spec = link, spec
        self.handlers, self.script = handlers, script
        self.concurrency: int = spec["max_concurrency"]
        self.loop = asyncio.get_running_loop()
        self.lock = threading.Lock()
        self.registration = Registration("", 10.0, 30.0)
        self.attempts: dict[str, Attempt] = {}  # by lease token
        self.newest: dict[str, Attempt] = {}  # by step
        self.queue: list[Attempt] = []  # finished, to be reported
        self.unstarted: list[Lease] = []  # to be released
        self.reserved = 0  # slots of claims under way
        self.running = 0  # handlers
        self.draining = False
        self.slot = asyncio.Event()  # a slot is free
        self.result = asyncio.Event()  # an outcome is ready
        self.back = asyncio.Event()  # a lease is to be released
        self.idle = asyncio.Event()  # no handler runs
        self.idle.set()
        self.closing = asyncio.Event()  # report the rest and end
        self.stop = asyncio.Event()  # drain
        self.renew = threading.Event()  # wakes the heartbeats
        self.broken: TaskerError | None = None  # the server refused the worker for good
        self._key_refused_at = 0.0
        self._registering = asyncio.Lock()

    # Registration

    async def register(self, final: tuple[str, ...]) -> None:
        """Registers the worker and retries, unless the code of the error is final."""
        backoff = Backoff()
        while True:
            sent = time.monotonic()
            try:
                registration = await self.link.register(self.spec)
                break
            except TaskerError as error:
                if error.code in final:
                    raise
                self.warn("could not register the worker, retrying: %s", error)
                await asyncio.sleep(backoff.after(error))
        with self.lock:
            self.registration = registration
        self.succeeded(sent)
        ids = {"worker_uuid": registration.worker_uuid}
        log.info("worker registered at %s, with %d handlers", self.link.url, len(self.spec["handlers"]), extra=ids)

    async def register_again(self, worker: str) -> None:
        """Registers again if the server does not know this id. Leases of the old id are lost."""
        async with self._registering:
            if worker != self.registration.worker_uuid or self.stop.is_set():
                return
            log.warning("the server does not know this worker; registering again", extra={"worker_uuid": worker})
            try:
                await self.register((Invalid.code, NotSupported.code, TooLarge.code))
            except TaskerError as error:
                self.broken = error
                self.stop.set()

    def warn(self, message: str, error: TaskerError, *args: Any) -> None:
        """Logs a failed request. Of consecutive refusals of the key, it logs the first, as an error."""
        if not is_refused_key(error):
            log.warning(message, *args, error)
            return
        with self.lock:
            first, self._key_refused_at = not self._key_refused_at, time.monotonic()
        if first:
            log.error("the server refused the API key; retrying until it accepts it, outcomes are kept: %s", error)

    def succeeded(self, sent: float) -> None:
        """Records that the server accepted the key of a request that was sent at this time."""
        with self.lock:
            again = 0 < self._key_refused_at < sent
            if again:
                self._key_refused_at = 0.0
        if again:
            log.info("the server accepts the API key again")

    # Attempts

    def free(self) -> int:
        """Returns how many more steps may be claimed."""
        return self.concurrency - len(self.attempts) - self.reserved

    def start(self, steps: list[dict[str, Any]], slots: int, sent: float) -> None:
        """Starts the handlers of claimed steps. The leases may be as old as the request."""
        self.reserved -= slots
        if steps and time.monotonic() - sent > self.registration.interval / 2:
            self.renew.set()
        for step in steps:
            if step["lease_token"] in self.attempts:
                continue  # the same answer arrived twice
            if not self._supersede(step) or self.draining:
                self.release_later({"step_uuid": step["step_uuid"], "lease_token": step["lease_token"]})
                continue
            self._begin(Attempt(step, sent + self.registration.lease))
        if self.free() > 0:
            self.slot.set()

    def _supersede(self, step: dict[str, Any]) -> bool:
        """Cancels an older attempt of a step that is assigned again. It returns False for the older one."""
        held = self.newest.get(step["step_uuid"])
        if held is None:
            return True
        if parse_time(step["lease_expires_at"]) < parse_time(held.step["lease_expires_at"]):
            return False
        with self.lock:
            self.lose(held)
        return True

    def _begin(self, attempt: Attempt) -> None:
        handler = self._handler(attempt.step)
        with self.lock:
            self.attempts[attempt.token] = self.newest[attempt.step_uuid] = attempt
        self.running += 1
        self.idle.clear()
        context = Context(attempt.step, self) if handler.is_async else SyncContext(attempt.step, self)
        attempt.context = context
        attempt.task = self.loop.create_task(execute(handler, context))
        attempt.task.add_done_callback(partial(self._finish, attempt))
        if attempt.step.get("deadline"):
            attempt.timer = self.loop.call_later(self._time_left(attempt.step), self.cancel, attempt, TIMEOUT)

    def _handler(self, step: dict[str, Any]) -> Handler:
        scripted = self.script(step) if self.script else None
        return scripted or self.handlers.get(step["handler"]) or Handler("unknown", _unknown(step["handler"]))

    def _time_left(self, step: dict[str, Any]) -> float:
        """Returns how long an attempt may run.

        The deadline is by the clock of the database, so it counts from the start of the lease. A
        deadline within the first lease shortens the lease, which hides its start. Then the local
        clock is used if that is plausible.
        """
        deadline, expires = parse_time(step["deadline"]), parse_time(step["lease_expires_at"])
        most = deadline - expires + self.registration.lease
        ours = deadline - time.time()
        return ours if deadline <= expires and 0 < ours < most else most

    def cancel(self, attempt: Attempt, cause: str) -> None:
        """Cancels a running handler. It is thread-safe."""
        context = attempt.context
        if context is None or attempt.task is None or attempt.finished:
            return
        context._cancelled = context._cancelled or cause
        if isinstance(context, Context):
            try:
                self.loop.call_soon_threadsafe(attempt.task.cancel)
            except RuntimeError:  # the loop is closed
                pass

    def lose(self, attempt: Attempt) -> None:
        """Handles a lost lease. An outcome is still sent: its answer decides. The caller holds the lock."""
        if attempt.finished:
            attempt.lost = True
        elif not attempt.dropped:
            attempt.dropped = True
            self.cancel(attempt, LOST)
            log.warning("lease lost, step stopped", extra=log_fields(attempt.step))

    def _finish(self, attempt: Attempt, task: asyncio.Task[Outcome]) -> None:
        """Accepts the outcome of a handler."""
        self.running -= 1
        if not self.running:
            self.idle.set()
        if attempt.timer:
            attempt.timer.cancel()
        cause = attempt.context._cancelled if attempt.context else None
        if task.cancelled():  # before it began
            outcome = Outcome(False, error={"message": cause or "cancelled", "type": "step_timeout"})
        else:
            outcome = task.result()
        with self.lock:
            attempt.finished = not attempt.dropped
        if attempt.dropped:
            self.settle(attempt)
        elif cause == INTERRUPTED and not outcome.success:
            self.settle(attempt)
            self.release_later(attempt.lease)
        else:
            attempt.encode(outcome)
            self.queue.append(attempt)
            self.result.set()

    def settle(self, attempt: Attempt) -> None:
        """Removes an attempt and frees its slot."""
        with self.lock:
            self.attempts.pop(attempt.token, None)
            if self.newest.get(attempt.step_uuid) is attempt:
                del self.newest[attempt.step_uuid]
        self.slot.set()

    # Services of a context

    async def document(self, href: str, what: str) -> Any:
        task = href.split("/")[3] if href.count("/") > 3 else href
        try:
            return await self._try(f"fetch the {what}", lambda: self.link.document(href), task)
        except TaskerError as error:
            message = f"cannot fetch the {what}: {error}"
            if isinstance(error, FINAL) or is_unknown(error, task):
                raise Permanent(message, type="invalid_input") from None
            raise StepError(message, type="input_unavailable") from None

    async def save(self, lease: Lease, checkpoint: bytes) -> None:
        try:
            await self._try(
                "save a checkpoint", lambda: self.link.checkpoint(self.registration.worker_uuid, lease, checkpoint)
            )
        except (Invalid, TooLarge) as error:
            raise Permanent(f"checkpoint: {error}", type="invalid_checkpoint") from None

    async def _try(self, action: str, send: Callable[[], Awaitable[T]], task: str = "") -> T:
        """Sends a request of a handler, up to TRIES times unless sending it again is useless."""
        backoff, tries = Backoff(), 0
        while True:
            tries += 1
            try:
                return await send()
            except TaskerError as error:
                if tries == TRIES or isinstance(error, FINAL) or (task and is_unknown(error, task)):
                    raise
                self.warn("cannot %s, retrying: %s", error, action)
                await asyncio.sleep(backoff.after(error))

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine in the event loop, for a handler in a thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    # Release

    def release_later(self, lease: Lease) -> None:
        self.unstarted.append(lease)
        self.back.set()

    async def release(self) -> None:
        """Releases leases of steps that do not run. Those that fail are released with the next call."""
        leases, self.unstarted = self.unstarted, []
        for batch in batches(leases):
            try:
                settled = await self.link.release(self.registration.worker_uuid, batch)
                batch = [lease for lease in batch if lease["step_uuid"] not in settled]
            except TaskerError as error:
                self.warn("could not release %d steps: %s", error, len(batch))
            self.unstarted += batch

    async def release_loop(self) -> None:
        backoff = Backoff()
        while True:
            await self.back.wait()
            self.back.clear()
            await self.release()
            if self.unstarted:
                self.back.set()
                await asyncio.sleep(backoff.step(LONG))
            else:
                backoff.reset()


def parse_time(text: str) -> float:
    """Converts a time of the API to seconds since 1970."""
    return TIME.validate_python(text).timestamp()


def _unknown(name: str) -> Callable[[], Coroutine[Any, Any, None]]:
    async def fail() -> None:
        raise StepError(f"this worker has no handler {name!r}", type="unknown_handler")

    return fail


def batches(leases: Iterable[Lease]) -> Iterable[list[Lease]]:
    """Splits leases into lists for one request each."""
    leases = list(leases)
    return [leases[i : i + MAX_BATCH] for i in range(0, len(leases), MAX_BATCH)]
