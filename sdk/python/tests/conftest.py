"""Fixtures: a server in memory, a worker that runs with it, and a real development server."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import tasker._backoff
import tasker._run
from tasker import Worker
from tasker.testing import DevServer

from .fake import FakeServer

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasker._backoff, "FIRST", 0.001)
    for name in ("TASKER_URL", "TASKER_TOKEN", "TASKER_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


Serve = Callable[[Worker], AbstractAsyncContextManager[Worker]]


def worker_for(server: FakeServer, **options: Any) -> Worker:
    return Worker("shop", transport=server, **{"name": "test", "drain_timeout": 5, **options})


@asynccontextmanager
async def serving(worker: Worker) -> AsyncIterator[Worker]:
    """Serves a worker during the block and drains it after it."""
    task = asyncio.ensure_future(worker.serve())
    try:
        yield worker
    finally:
        worker.stop()
        await task


@pytest.fixture(scope="session")
def binary() -> str:
    """The program tasker: TASKER_BINARY, or built from this repository."""
    if found := os.environ.get("TASKER_BINARY"):
        return found
    target = ROOT / ".cache" / "sdk-python" / "tasker"
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["go", "build", "-o", str(target), "./cmd/tasker"], cwd=ROOT, check=True)
    return str(target)


@pytest.fixture(scope="session")
def dev(binary: str) -> Iterator[DevServer]:
    """A real server with a test clock, for the whole session."""
    with DevServer(binary=binary) as server:
        yield server
