"""Options and rules of the client that need no connection."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from time import monotonic
from typing import Any

from pydantic import ValidationError
from typing_extensions import TypedDict, Unpack

from .context import faults
from .errors import Invalid
from .models import CreateTask, Debounce, Task, Unique

ENDED = frozenset(("complete", "cancelled", "resolved_manually"))
OPEN_MARKS = frozenset(("permanently_failed", "under_investigation", "opened_by_hand"))


class TaskOptions(TypedDict, total=False):
    """Optional fields of a new task. models.CreateTask describes them."""

    version: str
    idempotency_key: str
    priority: int
    tags: list[str]
    initiator: str
    reason: str
    source_system: str
    correlation_id: str
    parent_correlation_id: str
    recreated_from: str
    start_at: datetime
    start_after_seconds: float
    start_by: datetime
    start_within_seconds: float
    due_at: datetime
    due_after_seconds: float
    unique: Unique
    debounce: Debounce


class TaskFilter(TypedDict, total=False):
    """Filters of a list of tasks. tag and attribute (NAME:VALUE) must all match."""

    status: str
    phase: str
    namespace: str
    name: str
    dead_lettered: bool
    tag: list[str]
    attribute: list[str]
    correlation_id: str
    idempotency_key: str
    initiator: str
    source_system: str
    created_after: datetime
    created_before: datetime
    due_before: datetime
    overdue: bool
    parent: str
    before: str
    limit: int
    offset: int


def new_task(
    namespace: str, name: str, context: Mapping[str, Any] | None = None, **options: Unpack[TaskOptions]
) -> CreateTask:
    """Returns a task for create_tasks. It raises Invalid if an option does not fit."""
    fields: dict[str, Any] = {"namespace": namespace, "name": name, "context": dict(context or {}), **options}
    try:
        return CreateTask.model_validate(fields)
    except ValidationError as error:
        raise Invalid(faults(error, "task"), sent=False) from None


def has_settled(task: Task) -> bool:
    """Reports whether a task has ended or has an open investigation."""
    return task.status in ENDED or task.dead_letter_mark in OPEN_MARKS


class Clock:
    """Counts down a time limit in seconds."""

    def __init__(self, limit: float) -> None:
        self._end = monotonic() + limit

    def left(self) -> float:
        return max(self._end - monotonic(), 0.0)
