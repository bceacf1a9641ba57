"""Answers and requests of the API. Generated from the OpenAPI document: do not edit."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict


class Checkpoint(BaseModel):
    attempt: int
    """
    Attempt that saved it.
    """
    bytes: int
    saved_at: AwareDatetime
    value: Any | None = None
    """
    Absent in lists.
    """


class Deadline(BaseModel):
    announced_at: AwareDatetime | None = None
    """
    When the overdue notification was sent, or null.
    """
    due_at: AwareDatetime
    overdue: str
    """
    Reaction to the missed due time: with tell, notifications are sent; with investigate, an investigation is opened as well.
    """
    set_by: str | None = None
    """
    Operator who changed it, or null.
    """
    source: str
    """
    Origin of the current value.
    """
    state: str
    """
    While open: ahead, soon from warn_at on, overdue. After the end: completed in time (met) or later (missed), or cancelled or permanently failed (ended).
    """
    warn_at: AwareDatetime
    """
    When the warning is sent.
    """
    warned_at: AwareDatetime | None = None
    """
    When the warning was sent, or null.
    """


class Debounce(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
    )
    key: Annotated[str, Field(max_length=255, min_length=1)]
    """
    Unique within the template.
    """
    max_wait_seconds: Annotated[float | None, Field(ge=0.0, le=31622400.0)] = None
    """
    Maximum delay after the first request. Default: ten times wait_seconds.
    """
    wait_seconds: Annotated[float, Field(ge=0.0, le=31622400.0)]
    """
    Delay of the start after the last request.
    """


class EntryChange(BaseModel):
    actor: str
    changed_at: AwareDatetime
    event: str
    from_status: str | None = None
    metadata: Any
    notes: str | None = None
    to_status: str


class FailedStep(BaseModel):
    failed_since: AwareDatetime
    name: str
    step_uuid: str


class Fault(BaseModel):
    column: int | None = None
    line: int | None = None
    message: str
    path: str | None = None


class InvestigationQueueEntry(BaseModel):
    assignee: str
    """
    Investigator from the metadata, or empty.
    """
    case_id: str
    """
    Case of the entry. Empty until the failure is classified, within seconds.
    """
    case_key: str
    """
    Deprecated: failure key of version 0.1.
    """
    current_state: str
    """
    Current state of the task.
    """
    detail_code: str
    dlq_entry_uuid: str
    dlq_reason: str
    dlq_timestamp: AwareDatetime
    error_message: str
    """
    Latest failure, truncated.
    """
    error_pattern: str
    """
    Error of the step without ids and numbers.
    """
    failed_step: FailedStep | None = None
    """
    The currently failed step, or null. step_uuid is the step for which the entry was opened.
    """
    label: str
    """
    Short description of the cause.
    """
    minutes_in_dlq: float
    namespace_name: str
    original_state: str
    priority_score: float
    progress: str
    """
    State of the repair.
    """
    recovered_at: AwareDatetime | None = None
    severity: str
    step_name: str
    """
    Empty if no step failed.
    """
    step_uuid: str | None = None
    task_due: Deadline | None = None
    """
    Due time of the task, or null.
    """
    task_name: str
    task_uuid: str
    time_in_state_minutes: float | None = None
    """
    At the time when the entry was opened.
    """


class ItemCounts(BaseModel):
    cancelled: int
    completed: int
    """
    Complete or resolved manually.
    """
    enqueued: int
    failed: int
    in_progress: int
    pending: int
    """
    Waiting for a slot.
    """
    retrying: int
    """
    Failed, waiting for the next attempt.
    """
    skipped: int
    total: int


class Pagination(BaseModel):
    count: int
    """
    Elements in this response.
    """
    has_more: bool
    """
    More elements follow.
    """
    limit: int
    offset: int


class RegisteredTemplate(BaseModel):
    checksum: str
    created: bool
    """
    False if the same template already existed.
    """
    created_at: AwareDatetime
    description: str
    name: str
    namespace: str
    retired_at: AwareDatetime | None = None
    """
    Since when the version accepts no new tasks, or null.
    """
    retired_by: str | None = None
    retired_reason: str | None = None
    step_count: int
    version: str
    warnings: list[Fault]
    """
    Ignored keys of the document.
    """


class Step(BaseModel):
    assignee: str | None = None
    """
    Assignee of an external step: a person, or group: and a group. Null if unassigned.
    """
    attempts: int
    checkpoint: Checkpoint | None = None
    """
    Latest checkpoint. Absent if there is none or the step is done.
    """
    child_task_uuid: str | None = None
    """
    Latest task of a child step, or null.
    """
    completed_at: AwareDatetime | None = None
    completed_parents: int
    created_at: AwareDatetime
    current_state: str
    decided_at: AwareDatetime | None = None
    """
    When its condition and join allowed the step to run. Null if not decided yet or not applicable.
    """
    decision_due: bool
    """
    A server is about to decide whether the step runs or is skipped.
    """
    dependencies: list[str]
    """
    Ids of the steps that must complete first.
    """
    dependencies_satisfied: bool
    due: Deadline | None = None
    """
    Due time of the step. Null if it has none or is not ready.
    """
    error: Any
    """
    Last failure {message, type, retryable, …}, or null.
    """
    handler: str
    item: Any | None = None
    """
    Element of the list for the handler of an item.
    """
    items: ItemCounts | None = None
    """
    Items of a map step by state. Absent if it has none yet.
    """
    last_attempted_at: AwareDatetime | None = None
    last_failure_at: AwareDatetime | None = None
    lease_expires_at: AwareDatetime | None = None
    map_step_uuid: str | None = None
    """
    Map step of an item. Absent for other steps.
    """
    max_attempts: int
    name: str
    next_retry_at: AwareDatetime | None = None
    ordinal: int | None = None
    """
    Position of an item, from 0.
    """
    ready_for_execution: bool
    remind_at: AwareDatetime | None = None
    """
    Next reminder, from remind_after_seconds of the template, or null.
    """
    reminders: int
    """
    Reminders sent in the current wait of an external step.
    """
    results: Any
    """
    Last result {success, result, metadata}, or null.
    """
    retry_eligible: bool
    """
    The step is in error, retryable, and its backoff has passed.
    """
    skip_reason: str | None = None
    """
    Why the step was skipped, or null.
    """
    step_uuid: str
    task_uuid: str
    total_parents: int
    type: str
    undo_of: str | None = None
    """
    Name of the step that this one compensates. Null for steps of the template.
    """
    updated_at: AwareDatetime
    wait_until: AwareDatetime | None = None
    """
    When the wait of the step times out, with the outcome on_timeout of its template. Null if it does not wait or has no timeout.
    """
    worker_uuid: str | None = None


class Task(BaseModel):
    attributes: list[str] | None = None
    """
    Search attributes with a value, each as NAME:VALUE. Absent in lists and for callers without payloads:read.
    """
    completed_at: AwareDatetime | None = None
    completed_steps: int
    completion_percentage: float
    context: Any | None = None
    """
    Absent in lists.
    """
    correlation_id: str
    created_at: AwareDatetime
    dead_letter_label: str | None = None
    """
    Mark and reason in words.
    """
    dead_letter_mark: str | None = None
    """
    Meaning of the investigation for the task: permanently failed; it cannot progress or a step failed; opened by an operator; it continued automatically and the investigation is still open. Null without one.
    """
    dead_letter_reason: str | None = None
    dead_lettered: bool
    """
    An investigation of this task is open, or ended as permanently_failed.
    """
    dead_lettered_at: AwareDatetime | None = None
    debounce_key: str | None = None
    """
    Requests with this key are merged into the task until it starts. Null if there is none or the caller lacks payloads:read.
    """
    dlq_entry_uuid: str | None = None
    due: Deadline | None = None
    """
    Due time of the task, or null.
    """
    failed_steps: int
    first_deadline: str | None = None
    """
    The earlier of the two, or null.
    """
    in_progress_steps: int
    initiator: str
    max_duration_ends_at: AwareDatetime | None = None
    """
    End of max_duration_minutes of its template, or null.
    """
    merged_requests: int
    """
    Merged requests after the first.
    """
    name: str
    namespace: str
    outcome: str | None = None
    """
    Outcome of a compensation: completed; cancelled before its end; no completed step had a compensation. Null without a compensation and while it runs.
    """
    parent_correlation_id: str | None = None
    parent_step_uuid: str | None = None
    """
    Step that started this task.
    """
    parent_task_uuid: str | None = None
    """
    Task whose step started this one, or null. It may be deleted.
    """
    pending_steps: int
    phase: str | None = None
    """
    compensating: the task compensates its completed steps. Otherwise null.
    """
    priority: int
    ready_steps: int
    reason: str
    recreated_from: str | None = None
    skipped_steps: int
    """
    Steps skipped by a branch.
    """
    source_system: str
    start_at: AwareDatetime | None = None
    start_by: AwareDatetime | None = None
    """
    The task is cancelled with the reason expired unless a step is claimed by then. Null: no limit.
    """
    state_since: AwareDatetime
    """
    When the task entered its state, or last made progress in it.
    """
    status: str
    """
    State of the task.
    """
    steps: list[Step] | None = None
    """
    Absent in lists.
    """
    tags: list[str]
    task_uuid: str
    total_steps: int
    unique_key: str | None = None
    """
    Unique among the open tasks of the template. Null if there is none or the caller lacks payloads:read.
    """
    updated_at: AwareDatetime
    version: str
    warnings: list[Fault] | None = None
    """
    Only in create responses: search attributes that the task does not have, and why.
    """


class TaskPage(BaseModel):
    count: int
    """
    Elements in this response.
    """
    has_more: bool
    """
    More elements follow.
    """
    limit: int
    next_before: str | None = None
    """
    Value of before for the next page, without an offset. Null if the list is ordered by an attribute: use offset.
    """
    offset: int


class Template(BaseModel):
    checksum: str
    created_at: AwareDatetime
    description: str
    name: str
    namespace: str
    retired_at: AwareDatetime | None = None
    """
    Since when the version accepts no new tasks, or null.
    """
    retired_by: str | None = None
    retired_reason: str | None = None
    step_count: int
    version: str


class TemplateDetail(BaseModel):
    checksum: str
    configuration: Any
    created_at: AwareDatetime
    description: str
    name: str
    namespace: str
    retired_at: AwareDatetime | None = None
    """
    Since when the version accepts no new tasks, or null.
    """
    retired_by: str | None = None
    retired_reason: str | None = None
    source: str
    step_count: int
    version: str


class TemplateList(BaseModel):
    pagination: Pagination
    templates: list[Template]


class Unique(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
    )
    key: Annotated[str, Field(max_length=255, min_length=1)]
    """
    Unique within the template.
    """
    on_conflict: Literal["fail", "use_existing", "cancel_existing"] | None = None
    """
    Reaction if an open task has the key. fail, the default: 409 with its task_uuid in the details. use_existing: 200 with that task. cancel_existing: cancels that task.
    """


class UpdatedEntry(BaseModel):
    created_at: AwareDatetime
    current_task_state: str
    """
    Current state of the task.
    """
    detail_code: str
    detected_by: str
    dlq_entry_uuid: str
    dlq_reason: str
    dlq_timestamp: AwareDatetime
    failed_step: FailedStep | None = None
    """
    The currently failed step. Null if none has failed or the investigation has ended. step_uuid is the step for which it was opened.
    """
    guidance: str
    """
    First checks and possible fixes in the current state. It names the failed step.
    """
    history: list[EntryChange] | None = None
    """
    Only in responses with a single entry: up to 500 rows.
    """
    history_has_more: bool | None = None
    """
    More rows follow. Use history_offset to read them.
    """
    label: str
    """
    Short description of the cause.
    """
    message: str
    metadata: Any
    original_detail_code: str | None = None
    """
    First detail code, if a more severe reason replaced it, or null.
    """
    original_reason: str | None = None
    """
    First reason, if a more severe one replaced it, or null.
    """
    original_state: str
    predecessor_uuid: str | None = None
    recovered_at: AwareDatetime | None = None
    resolution_notes: str | None = None
    resolution_status: str
    resolved_at: AwareDatetime | None = None
    resolved_by: str | None = None
    severity: str
    step_uuid: str | None = None
    success: bool
    task_due: Deadline | None = None
    """
    Due time of the task, or null.
    """
    task_snapshot: Any
    task_uuid: str
    updated_at: AwareDatetime
    warnings: list[str]


class CancelledTasks(BaseModel):
    cancelled: int
    """
    Cancelled or compensating tasks. In a dry run, tasks that would be.
    """
    failed: int
    """
    Tasks that could not be cancelled. The server log has the errors.
    """
    more: bool
    """
    More tasks match: repeat the request.
    """
    sample: list[Task]
    """
    First tasks of the batch, in their previous state.
    """


class CreateTask(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
    )
    context: Any | None = None
    """
    Input of the task: a JSON object, validated against the input schema of the template.
    """
    correlation_id: Annotated[str | None, Field(max_length=128)] = None
    """
    Links the task to its request. Default: generated.
    """
    debounce: Debounce | None = None
    """
    Merges requests with equal keys into one task, which starts when no further request arrives for a while.
    """
    due_after_seconds: Annotated[float | None, Field(ge=0.0, le=157680000.0)] = None
    """
    The same, relative to its start. Alternative to due_at.
    """
    due_at: AwareDatetime | None = None
    """
    Due time: in the future, by the database clock.
    """
    idempotency_key: Annotated[str | None, Field(max_length=255)] = None
    """
    The same key with the same body returns the existing task. With a different body it is a conflict.
    """
    initiator: Annotated[str | None, Field(max_length=255)] = None
    """
    Person or program that requested the task.
    """
    name: Annotated[str, Field(max_length=128, min_length=1)]
    """
    Name of the template.
    """
    namespace: Annotated[str, Field(max_length=128, min_length=1)]
    """
    Namespace of the template.
    """
    parent_correlation_id: Annotated[str | None, Field(max_length=128)] = None
    priority: Annotated[int | None, Field(ge=-1000, le=1000)] = None
    """
    Steps of tasks with a higher priority run first.
    """
    reason: Annotated[str | None, Field(max_length=2000)] = None
    """
    Reason for the task.
    """
    recreated_from: UUID | None = None
    """
    Task that this one replaces.
    """
    source_system: Annotated[str | None, Field(max_length=255)] = None
    """
    System that sent the request.
    """
    start_after_seconds: Annotated[float | None, Field(ge=0.0, le=31622400.0)] = None
    """
    Earliest start after the creation, by the database clock. Alternative to start_at.
    """
    start_at: AwareDatetime | None = None
    """
    Earliest start.
    """
    start_by: AwareDatetime | None = None
    """
    The task is cancelled with the reason expired unless a step is claimed by this time.
    """
    start_within_seconds: Annotated[float | None, Field(ge=0.0, le=31622400.0)] = None
    """
    The same, relative to its start. Alternative to start_by.
    """
    tags: Annotated[list[str] | None, Field(max_length=50)] = None
    """
    Search tags.
    """
    unique: Unique | None = None
    """
    Allows one open task of the template per key.
    """
    version: Annotated[str | None, Field(max_length=64)] = None
    """
    Version of the template. Default: the newest.
    """


class CreatedTask(BaseModel):
    created: bool
    """
    False if the idempotency key belongs to an existing task.
    """
    task_uuid: str
    warnings: list[Fault] | None = None
    """
    Search attributes that the task does not have, and why.
    """


class CreatedTasks(BaseModel):
    tasks: list[CreatedTask]


class Entry(BaseModel):
    created_at: AwareDatetime
    current_task_state: str
    """
    Current state of the task.
    """
    detail_code: str
    detected_by: str
    dlq_entry_uuid: str
    dlq_reason: str
    dlq_timestamp: AwareDatetime
    failed_step: FailedStep | None = None
    """
    The currently failed step. Null if none has failed or the investigation has ended. step_uuid is the step for which it was opened.
    """
    guidance: str
    """
    First checks and possible fixes in the current state. It names the failed step.
    """
    history: list[EntryChange] | None = None
    """
    Only in responses with a single entry: up to 500 rows.
    """
    history_has_more: bool | None = None
    """
    More rows follow. Use history_offset to read them.
    """
    label: str
    """
    Short description of the cause.
    """
    metadata: Any
    original_detail_code: str | None = None
    """
    First detail code, if a more severe reason replaced it, or null.
    """
    original_reason: str | None = None
    """
    First reason, if a more severe one replaced it, or null.
    """
    original_state: str
    predecessor_uuid: str | None = None
    recovered_at: AwareDatetime | None = None
    resolution_notes: str | None = None
    resolution_status: str
    resolved_at: AwareDatetime | None = None
    resolved_by: str | None = None
    severity: str
    step_uuid: str | None = None
    task_due: Deadline | None = None
    """
    Due time of the task, or null.
    """
    task_snapshot: Any
    task_uuid: str
    updated_at: AwareDatetime


class TaskList(BaseModel):
    pagination: TaskPage
    tasks: list[Task]


class TaskOptions(TypedDict, total=False):
    """Optional fields of a new task. CreateTask describes them."""

    correlation_id: str
    debounce: Debounce
    due_after_seconds: float
    due_at: datetime
    idempotency_key: str
    initiator: str
    parent_correlation_id: str
    priority: int
    reason: str
    recreated_from: str
    source_system: str
    start_after_seconds: float
    start_at: datetime
    start_by: datetime
    start_within_seconds: float
    tags: list[str]
    unique: Unique
    version: str


class TaskFilter(TypedDict, total=False):
    """Filters of a list of tasks. tag and attribute (NAME:VALUE) must all match."""

    status: str
    phase: str
    namespace: str
    name: str
    dead_lettered: bool
    tag: list[str]
    correlation_id: str
    idempotency_key: str
    initiator: str
    source_system: str
    created_after: datetime
    created_before: datetime
    parent: str
    overdue: bool
    due_before: datetime
    attribute: list[str]
    limit: int
    offset: int
    before: str
