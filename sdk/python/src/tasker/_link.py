"""The worker's side of the protocol: one method for each request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from . import _json
from ._http import Endpoint, ForeignAnswer, Request, uses_proxy
from .errors import NotFound, TaskerError

PROTOCOL = 1  # the highest version that this SDK speaks
TIMEOUT = 30.0  # seconds for a request, in addition to its wait
STEP_KEYS = frozenset(
    ("step_uuid", "task_uuid", "name", "handler", "attempt", "lease_token", "lease_expires_at", "context")
)

Lease = Mapping[str, str]


@dataclass(frozen=True)
class Registration:
    """The answer to a registration. Durations are in seconds."""

    worker_uuid: str
    interval: float
    lease: float


class Link:
    """Sends the requests of a worker. Heartbeats have a client, and so a connection, of their own."""

    def __init__(self, endpoint: Endpoint, transport: Any = None) -> None:
        """transport replaces the network, for tests."""
        self._endpoint = endpoint
        limits = httpx.Limits(max_connections=32, max_keepalive_connections=32)
        proxy = uses_proxy(endpoint.url)
        self._async = httpx.AsyncClient(transport=transport, limits=limits, trust_env=proxy)
        self._pulse = httpx.Client(transport=transport, trust_env=proxy)

    @property
    def url(self) -> str:
        return self._endpoint.url

    async def close(self) -> None:
        await self._async.aclose()
        self._pulse.close()

    async def register(self, spec: Mapping[str, Any]) -> Registration:
        fields = ("worker_uuid", "heartbeat_interval_ms", "lease_ms")
        body = await self._post("/v1/workers", _json.encode(spec, "registration"), fields, timeout=10.0)
        interval, lease = body["heartbeat_interval_ms"] / 1000, body["lease_ms"] / 1000
        return Registration(body["worker_uuid"], interval or 10.0, lease or 30.0)

    async def claim(self, worker: str, most: int, wait: float) -> list[dict[str, Any]]:
        """Claims up to most steps and waits for them up to wait seconds."""
        request = _json.encode({"max": most, "wait_ms": round(wait * 1000)}, "claim")
        body = await self._post(f"/v1/workers/{worker}/claims", request, ("steps",), wait=wait)
        return self._steps(body["steps"])

    async def report(self, worker: str, outcomes: list[bytes], claim: int, timeout: float = TIMEOUT) -> dict[str, Any]:
        """Reports encoded outcomes and claims up to claim steps in the same request."""
        request = b'{"results":[' + b",".join(outcomes) + b"]"
        request += b',"claim":{"max":%d}}' % claim if claim else b"}"
        fields = ("accepted", "rejected", "steps") if claim else ("accepted", "rejected")
        body = await self._post(f"/v1/workers/{worker}/results", request, fields, timeout=timeout)
        body["steps"] = self._steps(body.get("steps") or [])
        return body

    async def release(self, worker: str, leases: list[Lease]) -> set[str]:
        """Releases leases and returns the steps that are released or lost."""
        request = _json.encode({"leases": leases}, "release")
        body = await self._post(f"/v1/workers/{worker}/release", request, ("released", "lost"), timeout=5.0)
        return {*body["released"], *body["lost"]}

    async def checkpoint(self, worker: str, lease: Lease, value: bytes) -> None:
        request = _json.encode(lease, "lease")[:-1] + b',"checkpoint":' + value + b"}"
        response = await self._send(Request("POST", f"/v1/workers/{worker}/checkpoint", body=request), TIMEOUT)
        self._endpoint.no_content(response)

    async def drain(self, worker: str) -> None:
        await self._send(Request("POST", f"/v1/workers/{worker}/drain", body=b"{}"), 2.0)

    async def leave(self, worker: str) -> None:
        response = await self._send(Request("DELETE", f"/v1/workers/{worker}"), 2.0)
        self._endpoint.no_content(response)

    async def document(self, href: str) -> Any:
        """Reads a bare document: the context of a task or a result."""
        if not href.startswith("/"):
            raise ForeignAnswer(f"cannot read {href!r}: must be a path of {self.url}")
        return self._endpoint.document(await self._send(Request("GET", href), 60.0))

    def heartbeat(self, worker: str, leases: list[Lease], timeout: float) -> dict[str, Any]:
        """Extends leases. It blocks, on a connection of its own."""
        body = _json.encode({"leases": leases}, "heartbeat")
        request = Request("POST", f"/v1/workers/{worker}/heartbeat", body=body)
        with self._endpoint.reaching():
            response = self._pulse.send(self._endpoint.build(self._pulse, request, timeout))
        return self._endpoint.answer(response, ("extended", "lost", "drain"))

    async def _post(
        self, path: str, body: bytes, fields: tuple[str, ...], timeout: float = TIMEOUT, wait: float = 0.0
    ) -> dict[str, Any]:
        response = await self._send(Request("POST", path, body=body, wait=wait), timeout)
        return self._endpoint.answer(response, fields)

    async def _send(self, request: Request, timeout: float) -> httpx.Response:
        with self._endpoint.reaching():
            return await self._async.send(self._endpoint.build(self._async, request, timeout))

    def _steps(self, steps: Any) -> list[dict[str, Any]]:
        if isinstance(steps, list) and all(isinstance(s, dict) and s.keys() >= STEP_KEYS for s in steps):
            return steps
        raise ForeignAnswer(f"{self.url} responded with steps in another form; is it a Tasker server?")


def is_unknown(error: Exception, uuid: str) -> bool:
    """Reports whether the API does not know this worker or task, not only a path with its id."""
    if not isinstance(error, NotFound) or uuid not in error.message:
        return False
    return any(not before.endswith("/") for before in error.message.split(uuid)[:-1])


def is_refused_key(error: Exception) -> bool:
    return isinstance(error, TaskerError) and error.code in ("UNAUTHORIZED", "FORBIDDEN")
