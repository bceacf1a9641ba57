"""Runs a worker inside a FastAPI or Starlette application.

app = FastAPI(lifespan=tasker.fastapi.lifespan(worker))
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from .worker import Worker

if TYPE_CHECKING:
    from fastapi import FastAPI

log = logging.getLogger("tasker.worker")

Lifespan = Callable[["FastAPI"], AbstractAsyncContextManager[Any]]


def lifespan(worker: Worker, inner: Lifespan | None = None, *, startup_timeout: float = 5.0) -> Lifespan:
    """Returns a lifespan that serves the worker while the application runs, and drains it at the end.

    The application starts when the server has accepted the worker, at the latest after
    startup_timeout seconds: the worker then retries in the background. A refused worker fails the
    start. inner is another lifespan, which runs around the worker and provides the state.
    """

    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[Any]:
        if inner is None:
            async with serving(worker, startup_timeout):
                yield
        else:
            async with inner(app) as state, serving(worker, startup_timeout):
                yield state

    return run


@asynccontextmanager
async def serving(worker: Worker, startup_timeout: float = 5.0) -> AsyncIterator[asyncio.Future[None]]:
    """Serves a worker in the background of an async with block, and drains it at the end.

    The value of the block is the future of worker.serve, which has the reason if the worker failed.
    """
    task = asyncio.ensure_future(worker.serve())
    accepted = asyncio.ensure_future(worker.wait_registered())
    try:
        await asyncio.wait({task, accepted}, timeout=startup_timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        accepted.cancel()
    if task.done():
        task.result()  # raises the reason
    task.add_done_callback(_log_end)
    try:
        yield task
    finally:
        worker.stop()
        await asyncio.wait({task})


def _log_end(task: asyncio.Future[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.critical("the worker ended: %s", error)
