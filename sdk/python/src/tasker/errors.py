"""Errors of the API, and the exceptions with which handlers fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .models import Task


class TaskerError(Exception):
    """A request that failed. Subclasses stand for the codes of the API.

    code is the code of the API, message says what is wrong and what to do, and details has
    machine-readable details such as a list of faults. retry_after is the delay in seconds that the
    server requested, or 0. sent is False if the server did not receive the request.
    """

    code = "INTERNAL"

    def __init__(
        self, message: str, *, code: str | None = None, details: Any = None, retry_after: float = 0.0, sent: bool = True
    ) -> None:
        super().__init__(message)
        self.code = code or self.code
        self.message = message
        self.details = details
        self.retry_after = retry_after
        self.sent = sent


class Invalid(TaskerError):
    """The request is invalid. Sending it again cannot succeed."""

    code = "INVALID"


class TooLarge(TaskerError):
    """A body, a document or a list exceeds its limit."""

    code = "TOO_LARGE"


class NotFound(TaskerError):
    """The object does not exist, or the key cannot see it."""

    code = "NOT_FOUND"


class Conflict(TaskerError):
    """The current state does not allow the request."""

    code = "CONFLICT"


class StaleLease(TaskerError):
    """The attempt no longer holds the lease of the step."""

    code = "STALE_LEASE"


class Unavailable(TaskerError):
    """The server cannot be reached, is overloaded, or something else responded. Try again later."""

    code = "UNAVAILABLE"


class Internal(TaskerError):
    """The server failed. Its log has the details."""

    code = "INTERNAL"


class Unauthorized(TaskerError):
    """The API key is missing, unknown, revoked or expired."""

    code = "UNAUTHORIZED"


class Forbidden(TaskerError):
    """The API key lacks a permission."""

    code = "FORBIDDEN"


class NotSupported(TaskerError):
    """The server does not support the method, the media type or the protocol version."""

    code = "NOT_SUPPORTED"


CODES = {kind.code: kind for kind in TaskerError.__subclasses__()}


class WaitTimeout(TimeoutError):
    """The task did not end in time. task is its last known state."""

    def __init__(self, task: Task, seconds: float) -> None:
        super().__init__(f"task {task.task_uuid} is {task.status} after {seconds:g} seconds")
        self.task = task


class StepError(Exception):
    """Fails an attempt with details. The retry policy of the step applies, as for any exception.

    type is for programs and statistics, such as "card_declined". context is JSON-encodable evidence
    for the investigation. fingerprint groups failures into one case, whatever their messages are.
    """

    retryable = True

    def __init__(
        self, message: str, *, type: str | None = None, context: Any = None, fingerprint: str | None = None
    ) -> None:
        super().__init__(message)
        self.type = type or self.__class__.__name__
        self.context = context
        self.fingerprint = fingerprint
        self.retry_after: float | None = None


class Permanent(StepError):
    """Fails the step without further attempts: an investigation opens."""

    retryable = False


class RetryAfter(StepError):
    """Fails the attempt and delays the next one by at least this many seconds."""

    def __init__(
        self,
        seconds: float,
        message: str = "",
        *,
        type: str | None = None,
        context: Any = None,
        fingerprint: str | None = None,
    ) -> None:
        message = message or f"retry after {seconds:g} seconds"
        super().__init__(message, type=type, context=context, fingerprint=fingerprint)
        self.retry_after = max(seconds, 0.0)
