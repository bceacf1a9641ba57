"""Tests of handlers without a server, and of whole workflows with a development server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from anyio.from_thread import start_blocking_portal

from . import _json
from ._handler import Handler, execute
from .client import Client
from .context import Context, SyncContext
from .errors import NotFound, StepError, WaitTimeout
from .fastapi import serving
from .models import Task
from .worker import Worker

__all__ = ["DevServer", "Fail", "Return", "StepRun", "run_step"]

START_TIME = 120.0  # seconds for the start of a server: PostgreSQL may have to create its data


@dataclass(frozen=True)
class StepRun:
    """The end of one attempt. error has message, type and retryable as they are reported."""

    success: bool
    result: Any = None
    error: dict[str, Any] = field(default_factory=dict)
    checkpoints: list[Any] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)


class _Bench:
    """The services of a context without a server."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.checkpoints: list[Any] = []

    async def document(self, href: str, what: str) -> Any:
        raise NotFound(f"there is no {what} in this test")

    async def save(self, lease: Mapping[str, str], checkpoint: bytes) -> None:
        self.checkpoints.append(json.loads(checkpoint))

    def wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()


def run_step(
    handler: Callable[..., Any],
    context: Any = None,
    *,
    results: Mapping[str, Any] | None = None,
    initialization: Mapping[str, Any] | None = None,
    item: Any = None,
    index: int | None = None,
    attempt: int = 1,
    checkpoint: Any = None,
) -> StepRun:
    """Runs a handler once, as a worker does, and returns the outcome as it would be reported.

    context is the context of the task, results has the results of the dependencies by name, item
    and index are those of a map step, and checkpoint is the last one of an earlier attempt. Values
    pass through JSON, as in a worker.
    """
    step: dict[str, Any] = {
        "step_uuid": "00000000-0000-7000-8000-000000000001",
        "task_uuid": "00000000-0000-7000-8000-000000000002",
        "correlation_id": "test",
        "namespace": "test",
        "task_name": "test",
        "task_version": "1.0.0",
        "name": getattr(handler, "__name__", "step"),
        "handler": getattr(handler, "__name__", "step"),
        "attempt": attempt,
        "max_attempts": max(attempt, 3),
        "lease_token": "test",
        "context": {} if context is None else context,
        "dependency_results": dict(results or {}),
        "initialization": dict(initialization or {}),
    }
    if item is not None or index is not None:
        step |= {"item": item, "index": index or 0}
    if checkpoint is not None:
        step["checkpoint"] = checkpoint
    step = _json.loads(_json.encode(step, "step"))
    with start_blocking_portal() as portal:
        run: StepRun = portal.call(_run_step, Handler(step["handler"], handler), step)
    return run


async def _run_step(handler: Handler, step: dict[str, Any]) -> StepRun:
    bench = _Bench(asyncio.get_running_loop())
    context = Context(step, bench) if handler.is_async else SyncContext(step, bench)
    outcome = await execute(handler, context)
    result = _json.loads(outcome.result) if outcome.success else None
    return StepRun(outcome.success, result, outcome.error, bench.checkpoints, context.metadata)


@dataclass(frozen=True)
class Return:
    """A scripted outcome: the step returns a result."""

    result: Any = None


@dataclass(frozen=True)
class Fail:
    """A scripted outcome: the attempt fails. retry_after is in seconds."""

    message: str
    type: str = "error"
    permanent: bool = False
    retry_after: float | None = None


Outcomes = Mapping[str, Sequence["Return | Fail"]]


class DevServer:
    """A development server, with a PostgreSQL and a directory of its own, for tests.

    with DevServer(templates="templates") as server, server.running(worker):
        task = server.client.create_task("shop", "order", {"total": 12})
        task = server.client.wait(task)
    """

    def __init__(
        self,
        *,
        binary: str | os.PathLike[str] | None = None,
        templates: str | os.PathLike[str] | None = None,
        test_clock: bool = True,
    ) -> None:
        """Configures a server. It starts in the with block, on a free port.

        binary is the program tasker (default: TASKER_BINARY, or tasker in the PATH). templates is a
        directory of templates to register. test_clock allows advance.
        """
        found = binary or os.environ.get("TASKER_BINARY") or shutil.which("tasker")
        if not found:
            raise FileNotFoundError("no program tasker: install it, or set TASKER_BINARY to its path")
        self._command = [os.fspath(found), "dev", "--listen", "127.0.0.1:0"]
        self._command += ["--test-clock"] if test_clock else []
        self._command += ["--templates", os.fspath(templates)] if templates else []
        self._stack = ExitStack()
        self._client: Client | None = None

    def __enter__(self) -> DevServer:
        with ExitStack() as stack:
            temporary = tempfile.TemporaryDirectory(prefix="tasker-", ignore_cleanup_errors=True)
            directory = Path(stack.enter_context(temporary))
            directory.chmod(0o755)  # PostgreSQL may run as another user
            log, self._data = directory / "server.log", directory / "data"
            with log.open("w") as output:
                process = subprocess.Popen(
                    [*self._command, "--data-dir", str(self._data)],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={k: v for k, v in os.environ.items() if not k.startswith("TASKER_")},
                    start_new_session=True,
                )
            stack.callback(_stop, process)
            self._client = stack.enter_context(Client(_wait_ready(process, log), key=""))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._client = None
        self._stack.close()

    @property
    def client(self) -> Client:
        """A client of this server."""
        if self._client is None:
            raise RuntimeError("the server is not running: use it in a with block")
        return self._client

    @property
    def url(self) -> str:
        return self.client.url

    def advance(self, seconds: float) -> str:
        """Advances the clock of the server: retries and timeouts become due. It returns the new time.

        It does not wait for handlers: the lease of one that runs may end. Call until before. Advance
        to the time at which work is due: long after it, the task is stale and is investigated.
        """
        body = {"advance_ms": round(seconds * 1000)}
        response = httpx.post(f"{self.url}/test/clock", json=body, timeout=60, trust_env=False)
        if response.status_code == 404:
            raise RuntimeError("the server has no test clock: start it with test_clock=True")
        response.raise_for_status()
        return str(response.json()["now"])

    def until(self, task: str | Task, status: str, timeout: float = 30.0) -> Task:
        """Waits until a task has a status, such as "waiting_for_retry", and returns it."""
        name, end = task if isinstance(task, str) else task.task_uuid, time.monotonic() + timeout
        while (found := self.client.get_task(name)).status != status:
            if time.monotonic() > end:
                raise WaitTimeout(found, timeout)
            time.sleep(0.05)
        return found

    @contextmanager
    def running(self, worker: Worker, outcomes: Outcomes | None = None) -> Iterator[Worker]:
        """Runs a worker in a thread while the with block runs.

        outcomes scripts attempts by the name of the step, or of its handler: they are used in order,
        for all tasks together. When they are used up, the handler of the worker is called. A name
        that is no handler of the worker is registered as one.
        """
        scripts = {name: list(script) for name, script in (outcomes or {}).items()}
        used_up = Fail("no outcome is left, and the worker has no such handler", "unscripted", permanent=True)
        more = {name: Handler(name, _player(used_up)) for name in scripts}
        worker = worker._for_tests(self.url, more, lambda step: _scripted(step, scripts))
        service = serving(worker, START_TIME)
        with start_blocking_portal() as portal, portal.wrap_async_context_manager(service) as ended:
            yield worker
        ended.result()


def _wait_ready(process: subprocess.Popen[bytes], log: Path) -> str:
    """Returns the URL of the server when it is ready."""
    end = time.monotonic() + START_TIME
    while time.monotonic() < end:
        running, text = process.poll() is None, log.read_text()
        if found := re.search(r"tasker is ready at (\S+)\s", text):
            return found[1]
        if not running:
            raise RuntimeError(f"tasker dev ended at its start: {text[-2000:]}")
        time.sleep(0.05)
    raise TimeoutError(f"tasker dev is not ready after {START_TIME:g} seconds: {log.read_text()[-2000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _scripted(step: Mapping[str, Any], scripts: dict[str, list[Return | Fail]]) -> Handler | None:
    """Returns a handler for the next scripted outcome of a step, or None."""
    for name in (step["name"], step["name"].partition("[")[0], step["handler"]):
        if scripts.get(name):
            return Handler(name, _player(scripts[name].pop(0)))
    return None


def _player(outcome: Return | Fail) -> Callable[[], Any]:
    async def play() -> Any:
        if isinstance(outcome, Return):
            return outcome.result
        error = StepError(outcome.message, type=outcome.type)
        error.retryable, error.retry_after = not outcome.permanent, outcome.retry_after
        raise error

    return play
