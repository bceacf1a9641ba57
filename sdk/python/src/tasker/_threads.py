"""Threads for handlers that are not async."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any


class Threads:
    """Runs functions in daemon threads, which do not keep a program alive.

    Threads are created on demand and reused. The caller limits how many functions run.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._busy = 0
        self._count = 0

    async def call(self, function: Callable[..., Any], args: list[Any]) -> Any:
        """Runs a function in a thread. A cancellation is ignored until the function returns."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def job() -> None:
            try:
                settle, value = future.set_result, context.run(function, *args)
            except BaseException as error:
                settle, value = future.set_exception, _storable(error)
            try:
                loop.call_soon_threadsafe(settle, value)
            except RuntimeError:  # the loop is closed: the worker ended without this handler
                pass

        self._busy += 1
        if self._busy > self._count:
            self._count += 1
            threading.Thread(target=self._work, name=f"tasker-step-{self._count}", daemon=True).start()
        self._jobs.put(job)
        try:
            return await future
        finally:
            self._busy -= 1

    def close(self) -> None:
        """Ends the threads when they are idle."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _work(self) -> None:
        while job := self._jobs.get():
            job()


def _storable(error: BaseException) -> BaseException:
    """Returns an exception that a future accepts."""
    if isinstance(error, StopIteration):
        return RuntimeError("the handler raised StopIteration")
    return error
