"""The asynchronous client of the HTTP API."""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from time import monotonic
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter
from typing_extensions import Self, Unpack

from . import _backoff, _json
from ._http import Endpoint, Request, path, uses_proxy
from ._key import KeySource
from ._options import has_settled, new_task
from .errors import TaskerError, WaitTimeout
from .models import (
    CancelledTasks,
    CreatedTasks,
    CreateTask,
    Entry,
    InvestigationQueueEntry,
    RegisteredTemplate,
    Step,
    Task,
    TaskFilter,
    TaskList,
    TaskOptions,
    TemplateDetail,
    TemplateList,
    UpdatedEntry,
)

T = TypeVar("T")

RETRIES = 3
POLL = 20.0  # seconds that one request waits for the end of a task
LEAST_POLL = 0.5  # between two polls, if the server answered early


class AsyncClient:
    """An asynchronous client. Errors are a TaskerError of the class of their code.

    Requests that may be applied twice are sent again a few times if the server is unreachable.
    Others are sent again only if they certainly did not arrive.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        key_file: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Configures a client. It does not connect.

        url is the server's (default: TASKER_URL, or http://127.0.0.1:8080). key_file is a file with
        the API key, which is read again when it changes (default: TASKER_TOKEN_FILE); key is the key
        itself (default: TASKER_TOKEN). timeout is for one request, in seconds.
        """
        self._endpoint = Endpoint(url, KeySource(key, key_file))
        self._timeout = timeout
        self._http = httpx.AsyncClient(transport=transport, trust_env=uses_proxy(self._endpoint.url))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._endpoint.url

    # Tasks

    async def create_task(
        self, namespace: str, name: str, context: Mapping[str, Any] | None = None, **options: Unpack[TaskOptions]
    ) -> Task:
        """Creates a task of the template namespace/name with this context.

        With an idempotency_key, repeating the call returns the same task. It raises Invalid if the
        context does not fit the template.
        """
        task = new_task(namespace, name, context, **options)
        body = task.model_dump_json(exclude_unset=True).encode()
        request = Request("POST", path("tasks"), body=body, repeatable=bool(task.idempotency_key))
        return await self._call(Task, request)

    async def create_tasks(self, tasks: Iterable[CreateTask]) -> CreatedTasks:
        """Creates all tasks of a list, at most 1,000, or none."""
        listed = list(tasks)
        body = f"[{','.join(t.model_dump_json(exclude_unset=True) for t in listed)}]".encode()
        keyed = all(t.idempotency_key for t in listed)
        return await self._call(CreatedTasks, Request("POST", path("tasks", "bulk"), body=body, repeatable=keyed))

    async def get_task(self, task: str) -> Task:
        """Returns a task with its steps."""
        return await self._get(Task, path("tasks", task))

    async def list_tasks(self, **filters: Unpack[TaskFilter]) -> TaskList:
        """Lists tasks without their steps, newest first.

        The next page begins with before=page.pagination.next_before.
        """
        return await self._get(TaskList, path("tasks"), filters)

    async def cancel_task(self, task: str, reason: str, by: str, *, compensate: bool = False) -> Task:
        """Cancels a task. compensate undoes its completed steps. A complete task is a Conflict."""
        query = _query({"reason": reason, "cancelled_by": by, "compensate": compensate or None})
        return await self._call(Task, Request("DELETE", path("tasks", task), query=query, repeatable=True))

    async def cancel_tasks(
        self, reason: str, by: str, *, dry_run: bool = False, compensate: bool = False, **filters: Unpack[TaskFilter]
    ) -> CancelledTasks:
        """Cancels open tasks that match the filters, one batch at a time: repeat it while more is true."""
        body = {"reason": reason, "by": by, "dry_run": dry_run, "compensate": compensate}
        request = Request("POST", path("tasks", "cancel"), query=_query(filters), repeatable=True)
        return await self._send(CancelledTasks, request, body)

    async def wait(self, task: str | Task, timeout: float = 60.0) -> Task:
        """Waits until a task has ended or has an open investigation, and returns it.

        It raises WaitTimeout, which is a TimeoutError, after timeout seconds.
        """
        where = path("tasks", task.task_uuid if isinstance(task, Task) else task)
        end = monotonic() + timeout
        while True:
            asked = monotonic()
            wait = max(min(end - asked, POLL), 0.0)
            query = {"wait_ms": round(wait * 1000)}
            found = await self._call(Task, Request("GET", where, query=query, repeatable=True, wait=wait))
            if has_settled(found):
                return found
            if monotonic() >= end:
                raise WaitTimeout(found, timeout)
            await asyncio.sleep(max(min(asked + LEAST_POLL, end) - monotonic(), 0.0))

    # Steps. A step is named by its name, such as "charge" or "refund[17]", or by its UUID.

    async def list_steps(self, task: str) -> list[Step]:
        """Lists the steps of a task."""
        return await self._get(list[Step], path("tasks", task, "workflow_steps"))

    async def get_step(self, task: str, step: str) -> Step:
        """Returns one step."""
        return await self._get(Step, path("tasks", task, "workflow_steps", step))

    async def reset_step(self, task: str, step: str, reason: str, by: str, **options: Any) -> Step:
        """Gives a failed step new attempts. Its task continues.

        Options are discard_checkpoint, interrupt and child. A step that has not failed is a Conflict.
        """
        body = {"action_type": "reset_for_retry", "reason": reason, "reset_by": by, **options}
        return await self._act(task, step, body)

    async def resolve_step(self, task: str, step: str, reason: str, by: str) -> Step:
        """Ends a step without a result. Its task continues."""
        return await self._act(task, step, {"action_type": "resolve_manually", "reason": reason, "resolved_by": by})

    async def complete_step(self, task: str, step: str, result: Any, reason: str, by: str) -> Step:
        """Completes a step with a result, as an operator. Its task continues."""
        body = {"action_type": "complete_manually", "completion_data": {"result": result}}
        return await self._act(task, step, {**body, "reason": reason, "completed_by": by})

    async def complete_external_step(self, task: str, step: str, result: Any = None, *, source: str = "") -> Step:
        """Reports the result of an external step, which waits for an answer.

        Repeating the same result succeeds. Another result is a Conflict.
        """
        return await self._complete(task, step, {"success": True, "result": result}, source)

    async def fail_external_step(
        self, task: str, step: str, message: str, *, type: str = "error", retryable: bool = False, source: str = ""
    ) -> Step:
        """Reports the failure of an external step."""
        error = {"message": message, "type": type, "retryable": retryable}
        return await self._complete(task, step, {"success": False, "error": error}, source)

    async def _complete(self, task: str, step: str, body: dict[str, Any], source: str) -> Step:
        if source:
            body["source"] = source
        where = path("tasks", task, "workflow_steps", step, "completion")
        return await self._send(Step, Request("POST", where, repeatable=True), body)

    async def _act(self, task: str, step: str, body: dict[str, Any]) -> Step:
        return await self._change(Step, path("tasks", task, "workflow_steps", step), body)

    # Investigations

    async def list_investigations(
        self,
        *,
        status: str | None = None,
        reason: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[Entry]:
        """Lists investigations, newest first. status is "pending" for the open ones."""
        query = {"resolution_status": status, "dlq_reason": reason, "limit": limit, "offset": offset}
        return await self._get(list[Entry], path("dlq"), query)

    async def investigation_queue(self, **filters: Any) -> list[InvestigationQueueEntry]:
        """Lists open investigations, most urgent first. Filters are those of the API, such as namespace."""
        return await self._get(list[InvestigationQueueEntry], path("dlq", "investigation-queue"), filters)

    async def get_investigation(self, investigation: str) -> Entry:
        """Returns an investigation with its history."""
        return await self._get(Entry, path("dlq", "entry", investigation))

    async def investigation_of(self, task: str) -> Entry:
        """Returns the latest investigation of a task. It raises NotFound if there is none."""
        return await self._get(Entry, path("dlq", "task", task))

    async def resolve_investigation(
        self, investigation: str, notes: str, by: str, *, status: str = "manually_resolved", compensate: bool = False
    ) -> UpdatedEntry:
        """Ends an investigation as manually_resolved, permanently_failed or cancelled."""
        body: dict[str, Any] = {"resolution_status": status, "resolution_notes": notes, "resolved_by": by}
        if compensate:
            body["compensate"] = True
        return await self._change(UpdatedEntry, path("dlq", "entry", investigation), body)

    # Templates

    async def put_template(self, template: str | Mapping[str, Any], *, strict: bool = False) -> RegisteredTemplate:
        """Registers a template, as YAML text or as a mapping. Registering it again succeeds.

        It raises Invalid with the faults as details, and Conflict if the version exists with other
        content. strict makes unknown keys faults.
        """
        query = _query({"strict": strict or None})
        request = Request("POST", path("templates"), query=query, repeatable=True)
        if not isinstance(template, str):
            return await self._send(RegisteredTemplate, request, dict(template))
        request.body, request.media = template.encode(), "application/yaml"
        return await self._call(RegisteredTemplate, request)

    async def get_template(self, namespace: str, name: str, version: str) -> TemplateDetail:
        """Returns one version of a template."""
        return await self._get(TemplateDetail, path("templates", namespace, name, version))

    async def list_templates(
        self, namespace: str | None = None, *, limit: int | None = None, offset: int | None = None
    ) -> TemplateList:
        """Lists the templates of a namespace, or of all."""
        query = {"namespace": namespace, "limit": limit, "offset": offset}
        return await self._get(TemplateList, path("templates"), query)

    # Requests

    async def _get(self, kind: type[T], where: str, query: Mapping[str, Any] | None = None) -> T:
        return await self._call(kind, Request("GET", where, query=_query(query or {}), repeatable=True))

    async def _change(self, kind: type[T], where: str, body: dict[str, Any]) -> T:
        request = Request("PATCH", where, idempotency_key=str(uuid.uuid4()), repeatable=True)
        return await self._send(kind, request, body)

    async def _send(self, kind: type[T], request: Request, body: dict[str, Any]) -> T:
        request.body = _json.encode(body, "body")
        return await self._call(kind, request)

    async def _call(self, kind: type[T], request: Request) -> T:
        """Sends a request, again if it is safe, and decodes the answer."""
        delay, left = _backoff.FIRST, RETRIES
        while True:
            try:
                with self._endpoint.reaching():
                    response = await self._http.send(self._endpoint.build(self._http, request, self._timeout))
                return self._endpoint.decode(TypeAdapter(kind), response)
            except TaskerError as error:
                again = not error.sent or (request.repeatable and error.code == "UNAVAILABLE")
                if not again or not left or error.code == "UNAUTHORIZED":
                    raise
                await asyncio.sleep(max(error.retry_after, delay * random.uniform(0.75, 1.0)))
                delay, left = 2 * delay, left - 1


def _query(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parameters that are set, in the form of the API."""
    query = {name: value for name, value in filters.items() if value is not None}
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in query.items()}
