"""The worker: it claims steps, runs their handlers and reports the outcomes."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ._claim import claim_loop
from ._handler import INTERRUPTED, Handler
from ._heartbeat import Heartbeats
from ._http import Endpoint
from ._key import KeySource
from ._link import PROTOCOL, Link
from ._report import Reporter
from ._run import Run, Script
from .errors import Forbidden, Invalid, NotFound, NotSupported, TaskerError, TooLarge, Unauthorized

F = TypeVar("F", bound=Callable[..., Any])

FINAL_AT_START = tuple(e.code for e in (Invalid, TooLarge, NotSupported, NotFound, Unauthorized, Forbidden))
CLAIM_GRACE = 1.0  # seconds for a claim under way, which may return steps
STOP_GRACE = 5.0  # for handlers that were cancelled
REPORT_TIME = 10.0  # for the last reports if the server is unreachable
CALL_TIME = 2.0  # for the messages that the worker drains and leaves

log = logging.getLogger("tasker.worker")


class Worker:
    """Runs the steps of namespaces with registered handlers.

    A step can run more than once, because a worker can fail between the effect and the report. Use
    ctx.step_uuid as the idempotency key of the effect.
    """

    def __init__(
        self,
        namespaces: str | Sequence[str],
        *,
        url: str | None = None,
        key: str | None = None,
        key_file: str | os.PathLike[str] | None = None,
        concurrency: int = 10,
        drain_timeout: float = 20.0,
        name: str | None = None,
        version: str = "",
        transport: Any = None,
    ) -> None:
        """Configures a worker. It does not connect.

        url is the server's (default: TASKER_URL, or http://127.0.0.1:8080). key_file is a file with
        the API key, which is read again when it changes (default: TASKER_TOKEN_FILE); key is the key
        itself (default: TASKER_TOKEN). concurrency is how many steps run at once. drain_timeout is
        how long handlers may continue, in seconds, when the worker ends. name (default: the host
        name) and version are shown in lists. transport replaces the network in tests.
        """
        names = (namespaces,) if isinstance(namespaces, str) else tuple(namespaces)
        if not names:
            raise ValueError("namespaces is empty: name at least one namespace")
        if concurrency < 1:
            raise ValueError(f"invalid concurrency {concurrency}: must be at least 1")
        self._endpoint = Endpoint(url, KeySource(key, key_file))
        self._transport = transport
        self._drain_timeout = drain_timeout
        self._spec = {
            "name": name or socket.gethostname() or "worker",
            "namespaces": names,
            "version": version,
            "max_concurrency": concurrency,
            "protocol": PROTOCOL,
        }
        self._handlers: dict[str, Handler] = {}
        self._script: Script | None = None
        self._run: Run | None = None
        self._stop_requested = False
        self._registered = asyncio.Event()

    def step(self, name: str) -> Callable[[F], F]:
        """Registers the decorated function as the handler called name in templates.

        The function is async def, or a plain function, which runs in a thread. It takes the context
        of the task, the ctx, both or neither; type hints convert the input and the result.
        """

        def register(function: F) -> F:
            self.add(name, function)
            return function

        return register

    def add(self, name: str, function: Callable[..., Any]) -> None:
        """Registers a handler like step. It raises ValueError if the name is taken."""
        if not name or name in self._handlers:
            raise ValueError(f"handler {name!r} is registered twice" if name else "the name of a handler is empty")
        self._handlers[name] = Handler(name, function)

    @property
    def handlers(self) -> list[str]:
        """The names of the registered handlers, sorted."""
        return sorted(self._handlers)

    def _for_tests(self, url: str, more: Mapping[str, Handler], script: Script) -> Worker:
        """Returns a copy that works for another server, with scripted outcomes and more handlers."""
        other = copy.copy(self)
        other._endpoint, other._script, other._registered = Endpoint(url, KeySource("")), script, asyncio.Event()
        other._handlers = {**more, **self._handlers}
        return other

    async def wait_registered(self) -> None:
        """Waits until the server has accepted the worker that serve runs."""
        await self._registered.wait()

    def run(self) -> None:
        """Runs the worker until SIGTERM or SIGINT, then drains.

        It is the main function of a program: if the server refuses the worker, it ends the program
        with status 1 and one sentence on stderr.
        """
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._with_signals(loop))
        except (TaskerError, HandlersStuck) as error:
            raise SystemExit(f"tasker: {error}") from None
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    async def _with_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        for s in (signal.SIGTERM, signal.SIGINT):
            try:
                loop.add_signal_handler(s, self.stop)
            except (NotImplementedError, RuntimeError):  # Windows, or not the main thread
                with suppress(ValueError):
                    signal.signal(s, lambda *_: loop.call_soon_threadsafe(self.stop))
        await self.serve()

    def stop(self) -> None:
        """Makes serve drain and return. Call it in the event loop of serve."""
        self._stop_requested = True
        if self._run:
            self._run.stop.set()

    async def serve(self) -> None:
        """Runs the worker until stop is called or an operator drains it.

        It then claims no more, lets handlers finish within drain_timeout, cancels and releases the
        rest, reports the outcomes and leaves. Cancelling serve drains, too. It raises a TaskerError
        if the server refuses the worker, and HandlersStuck if handlers ignore their cancellation.
        """
        if not self._handlers:
            raise ValueError("the worker has no handlers: register one with @worker.step")
        if self._run:
            raise RuntimeError("the worker is already running: create another one")
        link = Link(self._endpoint, self._transport)
        run = self._run = Run(link, {**self._spec, "handlers": self.handlers}, self._handlers, self._script)
        if self._stop_requested:
            run.stop.set()
        try:
            if await self._register(run):
                self._registered.set()
                await _operate(run, self._drain_timeout)
        finally:
            self._run, self._stop_requested = None, False
            self._registered.clear()
            await link.close()
        if run.broken:
            raise run.broken

    async def _register(self, run: Run) -> bool:
        """Registers the worker. It returns False if the worker is stopped before."""
        registering = asyncio.ensure_future(run.register(FINAL_AT_START))
        stopping = asyncio.ensure_future(run.stop.wait())
        try:
            await asyncio.wait({registering, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not registering.done():
                return False
            registering.result()
            return True
        except TaskerError as error:
            text = f"the server at {run.link.url} refuses worker {self._spec['name']}: {error.message}"
            raise type(error)(text, code=error.code, details=error.details, sent=error.sent) from None
        finally:
            registering.cancel()
            stopping.cancel()


class HandlersStuck(RuntimeError):
    """Handlers ignored their cancellation at the end of the worker. Their steps were released."""


async def _operate(run: Run, drain_timeout: float) -> None:
    """Runs the loops of a registered worker until it is stopped, then drains."""
    reporter, heartbeats = Reporter(run), Heartbeats(run)
    heartbeats.start()
    claims = _spawn(claim_loop(run))
    releases = _spawn(run.release_loop())
    reports = _spawn(reporter.loop())
    resends = _spawn(reporter.unsure.loop(reports))
    lone = _spawn(reporter.lone.loop(resends))
    stopping = _spawn(run.stop.wait())
    loops = {claims, releases, reports, resends, lone}
    cancelled: asyncio.CancelledError | None = None
    try:
        await asyncio.wait({stopping, *loops}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError as error:
        cancelled = error
    run.stop.set()
    failed = [t.exception() for t in loops if t.done() and not t.cancelled() and t.exception()]
    try:
        stuck = await _drain(run, claims, drain_timeout)
        run.closing.set()
        run.result.set()
        await asyncio.wait({reports, resends, lone}, timeout=REPORT_TIME)
        await heartbeats.stop()
        await _leave(run)
    finally:
        for task in (stopping, *loops):
            task.cancel()
        await asyncio.gather(stopping, *loops, return_exceptions=True)
        await heartbeats.stop()
    if cancelled:
        raise cancelled
    if failed:
        raise RuntimeError("a loop of the worker failed") from failed[0]
    if stuck:
        raise HandlersStuck(f"{stuck} handlers did not stop when they were cancelled; their steps were released")


async def _drain(run: Run, claims: asyncio.Task[None], timeout: float) -> int:
    """Ends the claims and the handlers. It returns how many handlers ignore their cancellation."""
    run.draining = True
    run.slot.set()
    log.info("worker draining, %d steps held", len(run.attempts), extra={"worker_uuid": run.registration.worker_uuid})
    announcement = _spawn(_announce(run))
    await asyncio.wait({claims}, timeout=CLAIM_GRACE)
    claims.cancel()
    await asyncio.wait({claims})
    if not await _idle(run, timeout):
        for attempt in list(run.attempts.values()):
            run.cancel(attempt, INTERRUPTED)
        await _idle(run, STOP_GRACE)
    await asyncio.wait({announcement}, timeout=CALL_TIME)
    announcement.cancel()
    return _abandon(run)


async def _idle(run: Run, timeout: float) -> bool:
    """Waits for the handlers."""
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(run.idle.wait(), timeout)
    return not run.running


def _abandon(run: Run) -> int:
    """Releases the steps of handlers that still run."""
    with run.lock:
        stuck = [a for a in run.attempts.values() if not a.finished]
        for attempt in stuck:
            if not attempt.dropped:
                run.release_later(attempt.lease)
            attempt.dropped = True
    return len(stuck)


async def _announce(run: Run) -> None:
    """Tells the server that the worker drains. The drain continues whatever the answer is."""
    with suppress(TaskerError):
        await run.link.drain(run.registration.worker_uuid)


async def _leave(run: Run) -> None:
    """Releases the remaining leases and ends the registration."""
    worker = run.registration.worker_uuid
    try:
        await asyncio.wait_for(run.release(), CALL_TIME)
        await asyncio.wait_for(run.link.leave(worker), CALL_TIME)
    except NotFound:
        return
    except (TaskerError, asyncio.TimeoutError) as error:
        log.warning("could not end the registration; the server removes it later: %s", error)
        return
    log.info("worker left, %d outcomes unreported", len(run.attempts), extra={"worker_uuid": worker})


def _spawn(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(coroutine)
