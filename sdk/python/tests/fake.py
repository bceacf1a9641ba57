"""A server of the worker protocol in memory, with failures on demand."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import httpx

HTML = "<html>Sign in</html>"


def error(status: int, code: str, message: str, **headers: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"code": code, "message": message}}, headers=headers)


def page(status: int = 200) -> httpx.Response:
    """Returns the page of a proxy."""
    return httpx.Response(status, html=HTML)


def unavailable() -> httpx.Response:
    return error(503, "UNAVAILABLE", "try again")


Reply = httpx.Response | Exception | Callable[[dict[str, Any]], httpx.Response | None]


class FakeServer(httpx.AsyncBaseTransport, httpx.BaseTransport):
    """Assigns the steps of `ready` and collects the results. `replies` overrides the next answers."""

    def __init__(self, interval_ms: int = 10_000, lease_ms: int = 30_000) -> None:
        self.interval_ms, self.lease_ms = interval_ms, lease_ms
        self.drain = False
        self.workers = 0
        self.ready: list[dict[str, Any]] = []
        self.replies: dict[str, list[Reply]] = defaultdict(list)
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.documents: dict[str, httpx.Response] = {}
        self.results: dict[str, dict[str, Any]] = {}
        self.released: list[str] = []
        self.checkpoints: list[Any] = []
        self.lost: set[str] = set()
        self.left = threading.Event()
        self.keys: list[str | None] = []
        self.changed = threading.Condition()

    # Situations

    def step(self, handler: str, context: Any = None, **fields: Any) -> dict[str, Any]:
        """Returns a step to assign."""
        number = fields.pop("number", len(self.requests) + len(self.ready) + 1)
        uuid = fields.pop("step_uuid", f"step-{number}")
        return {
            "step_uuid": uuid,
            "task_uuid": "task-1",
            "namespace": "shop",
            "task_name": "order",
            "task_version": "1.0.0",
            "name": handler,
            "handler": handler,
            "attempt": 1,
            "max_attempts": 3,
            "lease_token": f"token-{uuid}",
            "lease_expires_at": "2026-11-21T01:56:15.377764Z",
            "deadline": None,
            "correlation_id": "c",
            "context": {} if context is None else context,
            "dependency_results": {},
            "initialization": {},
            **fields,
        }

    def add(self, handler: str, context: Any = None, **fields: Any) -> dict[str, Any]:
        """Makes a step ready and returns it."""
        step = self.step(handler, context, **fields)
        with self.changed:
            self.ready.append(step)
            self.changed.notify_all()
        return step

    def document(self, path: str, value: Any, tag: str | None = None) -> str:
        """Serves a bare document and returns its path."""
        body = json.dumps(value).encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
        self.documents[path] = httpx.Response(200, content=body, headers={"ETag": tag or f'"{digest}"'})
        return path

    def count(self, kind: str) -> int:
        return sum(k == kind for k, _ in self.requests)

    def bodies(self, kind: str) -> list[dict[str, Any]]:
        return [b for k, b in self.requests if k == kind]

    def await_in_thread(self, condition: Callable[[], bool], timeout: float = 10) -> bool:
        """Waits in a thread, or in a handler that blocks."""
        with self.changed:
            return self.changed.wait_for(condition, timeout)

    async def until(self, condition: Callable[[], bool], timeout: float = 10) -> None:
        """Waits until a request made the condition true."""
        if not await asyncio.to_thread(self.await_in_thread, condition, timeout):
            raise AssertionError(f"not reached; requests: {[k for k, _ in self.requests][-20:]}")

    # Transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        kind, body = self._receive(request)
        return self._answer(kind, body, request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        kind, body = self._receive(request)
        if kind == "claims" and not self.ready and not self.replies["claims"]:
            wait = 1.0 if self.drain else body.get("wait_ms", 0) / 1000
            await asyncio.to_thread(
                self.await_in_thread, lambda: bool(self.ready or self.left.is_set()), min(wait, 0.2)
            )
        return self._answer(kind, body, request)

    def _receive(self, request: httpx.Request) -> tuple[str, dict[str, Any]]:
        parts = request.url.path.strip("/").split("/")
        kind = "register" if parts == ["v1", "workers"] else parts[-1]
        if request.method == "DELETE":
            kind = "leave"
        elif request.method == "GET":
            kind = "document"
        body = json.loads(request.content) if request.content else {}
        with self.changed:
            self.requests.append((kind, body))
            self.keys.append(request.headers.get("Authorization"))
            self.changed.notify_all()
        return kind, body

    def _answer(self, kind: str, body: dict[str, Any], request: httpx.Request) -> httpx.Response:
        with self.changed:
            reply = self.replies[kind].pop(0) if self.replies[kind] else None
            if isinstance(reply, Exception):
                raise reply
            if isinstance(reply, httpx.Response):
                return reply
            if reply and (made := reply(body)):
                return made
            if kind == "document":
                return self.documents.get(request.url.path) or error(404, "NOT_FOUND", "no result of task task-1")
            answer = getattr(self, f"_{kind}")(body)
            self.changed.notify_all()
            return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)

    def _register(self, body: dict[str, Any]) -> httpx.Response:
        self.workers += 1
        answer = {
            "worker_uuid": f"worker-{self.workers}",
            "heartbeat_interval_ms": self.interval_ms,
            "lease_ms": self.lease_ms,
        }
        return httpx.Response(201, json=answer)

    def _claims(self, body: dict[str, Any]) -> dict[str, Any]:
        steps, self.ready = self.ready[: body["max"]], self.ready[body["max"] :]
        return {"steps": steps}

    def _results(self, body: dict[str, Any]) -> dict[str, Any]:
        for result in body["results"]:
            self.results[result["step_uuid"]] = result
        steps = self._claims(body["claim"])["steps"] if "claim" in body else []
        return {"accepted": [r["step_uuid"] for r in body["results"]], "rejected": [], "steps": steps}

    def _heartbeat(self, body: dict[str, Any]) -> dict[str, Any]:
        held = [lease["step_uuid"] for lease in body["leases"]]
        ends = [{"step_uuid": s, "lease_expires_at": f"{len(self.requests)}"} for s in held if s not in self.lost]
        return {"extended": ends, "lost": [s for s in held if s in self.lost], "drain": self.drain}

    def _release(self, body: dict[str, Any]) -> dict[str, Any]:
        steps = [lease["step_uuid"] for lease in body["leases"]]
        self.released += steps
        return {"released": steps, "lost": []}

    def _checkpoint(self, body: dict[str, Any]) -> httpx.Response:
        self.checkpoints.append(body["checkpoint"])
        return httpx.Response(204)

    def _drain(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"worker_uuid": "worker-1"}

    def _leave(self, body: dict[str, Any]) -> httpx.Response:
        self.left.set()
        return httpx.Response(204)
