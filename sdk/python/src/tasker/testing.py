"""Tests of handlers without a server, and of whole workflows with a development server."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx

from . import _json
from ._handler import Handler, execute
from ._threads import Threads
from .client import Client
from .context import Context, SyncContext
from .errors import NotFound, RetryAfter, StepError, WaitTimeout
from .models import Task
from .worker import Worker

__all__ = ["DevServer", "Fail", "Return", "StepRun", "run_step"]

T = TypeVar("T")

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
    return _in_own_loop(lambda: _run_step(Handler(step["handler"], handler), step))


async def _run_step(handler: Handler, step: dict[str, Any]) -> StepRun:
    bench = _Bench(asyncio.get_running_loop())
    context = Context(step, bench) if handler.is_async else SyncContext(step, bench)
    threads = Threads()
    try:
        outcome = await execute(handler, context, threads.call)
    finally:
        threads.close()
    result = _json.loads(outcome.result) if outcome.success else None
    return StepRun(outcome.success, result, outcome.error, bench.checkpoints, context.metadata)


def _in_own_loop(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs a coroutine function in a new event loop, in a thread if this one has a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(call())
    ended: list[T] = []
    thread = threading.Thread(target=lambda: ended.append(asyncio.run(call())))
    thread.start()
    thread.join()
    return ended[0]


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
        data_dir: str | os.PathLike[str] | None = None,
        test_clock: bool = True,
    ) -> None:
        """Configures a server. It starts in the with block, on a free port.

        binary is the program tasker (default: TASKER_BINARY, or tasker in the PATH). templates is a
        directory of templates to register. data_dir is kept; the default is a directory that is
        removed at the end. test_clock allows advance.
        """
        found = binary or os.environ.get("TASKER_BINARY") or shutil.which("tasker")
        if not found:
            raise FileNotFoundError("no program tasker: install it, or set TASKER_BINARY to its path")
        self._command = [os.fspath(found), "dev", "--listen", "127.0.0.1:0"]
        self._command += ["--test-clock"] if test_clock else []
        self._command += ["--templates", os.fspath(templates)] if templates else []
        self._data_dir = os.fspath(data_dir) if data_dir else None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[str] | None = None
        self._client: Client | None = None

    def __enter__(self) -> DevServer:
        directory = self._data_dir
        if directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="tasker-", ignore_cleanup_errors=True)
            directory = self._temporary.name
            os.chmod(directory, 0o755)  # PostgreSQL may run as another user
        log = Path(directory, "server.log")
        with log.open("w") as output:
            environment = {k: v for k, v in os.environ.items() if not k.startswith("TASKER_")}
            self._process = subprocess.Popen(
                [*self._command, "--data-dir", str(Path(directory, "data"))],
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment,
                start_new_session=True,
            )
        try:
            self._client = Client(self._wait_ready(log), key="")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_ready(self, log: Path) -> str:
        """Returns the URL of the server when it is ready."""
        end = time.monotonic() + START_TIME
        while time.monotonic() < end:
            text = log.read_text()
            for line in text.splitlines():
                _, found, url = line.partition("tasker is ready at ")
                if found:
                    return url.split()[0]
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"tasker dev ended at its start: {text[-2000:]}")
            time.sleep(0.05)
        raise TimeoutError(f"tasker dev is not ready after {START_TIME:g} seconds: {log.read_text()[-2000:]}")

    def __exit__(self, *_: object) -> None:
        if self._client:
            self._client.close()
            self._client = None
        if self._process:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._temporary:
            self._temporary.cleanup()
            self._temporary = None

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

        It does not wait for handlers: the lease of one that runs may end. Call until before.
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
        worker = worker._for_tests(self.url, scripts, lambda step: _scripted(step, scripts))
        started, ended = threading.Event(), list[BaseException]()
        holder: list[asyncio.AbstractEventLoop] = []

        async def serve() -> None:
            holder.append(asyncio.get_running_loop())
            serving = asyncio.ensure_future(worker.serve())
            waiting = asyncio.ensure_future(worker.wait_registered())
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            started.set()
            await serving

        def work() -> None:
            try:
                asyncio.run(serve())
            except BaseException as error:
                ended.append(error)
            finally:
                started.set()

        thread = threading.Thread(target=work, name="tasker-worker", daemon=True)
        thread.start()
        started.wait()
        try:
            if ended:
                raise ended[0]
            yield worker
        finally:
            if thread.is_alive():
                try:
                    holder[0].call_soon_threadsafe(worker.stop)
                except RuntimeError:  # it ended just now
                    pass
            thread.join()
        if ended:
            raise ended[0]


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
        if outcome.retry_after is not None:
            raise RetryAfter(outcome.retry_after, outcome.message, type=outcome.type)
        error = StepError(outcome.message, type=outcome.type)
        error.retryable = not outcome.permanent
        raise error

    return play
