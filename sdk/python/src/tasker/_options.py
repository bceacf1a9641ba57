"""Rules of the client that need no connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from typing_extensions import Unpack

from .context import faults
from .errors import Invalid
from .models import CreateTask, Task, TaskOptions

ENDED = frozenset(("complete", "cancelled", "resolved_manually"))
OPEN_MARKS = frozenset(("permanently_failed", "under_investigation", "opened_by_hand"))


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
