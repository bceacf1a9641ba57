"""The context of an attempt, which handlers get as ctx."""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any, Protocol, TypeVar, overload

from pydantic import TypeAdapter, ValidationError

from . import _json
from .errors import Permanent

T = TypeVar("T")

MAX_CHECKPOINT = 16 << 10  # bytes
logger = logging.getLogger("tasker.step")


class Services(Protocol):
    """What a context needs from the worker or from a test."""

    async def document(self, href: str, what: str) -> Any: ...

    async def save(self, lease: Mapping[str, str], checkpoint: bytes) -> None: ...

    def wait(self, coroutine: Any) -> Any: ...


class BaseContext:
    """One attempt of a step: its ids and inputs. Context and SyncContext add the methods that wait."""

    def __init__(self, step: Mapping[str, Any], services: Services) -> None:
        self._step = step
        self._services = services
        self._cancelled: str | None = None
        self.step_uuid: str = step["step_uuid"]
        """The id of the step. Use it as the idempotency key of the side effect."""
        self.task_uuid: str = step["task_uuid"]
        self.correlation_id: str = step["correlation_id"]
        self.namespace: str = step["namespace"]
        self.task_name: str = step["task_name"]
        self.task_version: str = step["task_version"]
        self.step_name: str = step["name"]
        self.attempt: int = step["attempt"]
        """The number of this attempt. The first is 1."""
        self.max_attempts: int = step["max_attempts"]
        self.initialization: Any = step.get("initialization")
        """The initialization that the template defines for the step."""
        self.context: Any = step.get("context")
        """The context of the task. For an item of a map step, it lacks the list: see task_context."""
        self.item: Any = step.get("item")
        """The element of the list, for an item of a map step. Otherwise None."""
        self.index: int | None = step.get("index")
        """The position of the item in the list, from 0, or None."""
        self.last_checkpoint: Any = step.get("checkpoint")
        """The latest checkpoint of this or an earlier attempt, or None."""
        self.metadata: dict[str, Any] = {}
        """Stored with the result for people. Other steps do not get it."""
        self.logger = StepLogger(logger, log_fields(step))
        """A logger that adds the ids of the step to each record, as extra fields."""

    @property
    def cancelled(self) -> bool:
        """True if the handler must stop: the lease is lost, the time is over, or the worker ends."""
        return self._cancelled is not None

    @property
    def dependencies(self) -> list[str]:
        """The names of the dependencies that have a result, sorted."""
        return sorted({*self._step.get("dependency_results", {}), *self._step.get("dependency_result_refs", {})})

    async def _result(self, kind: Any, name: str) -> Any:
        inline = self._step.get("dependency_results", {})
        if name in inline:
            value = inline[name]
        elif reference := self._step.get("dependency_result_refs", {}).get(name):
            what = f"result of step {name} ({reference['bytes']} bytes)"
            value = await self._services.document(reference["href"], what)
        else:
            known = ", ".join(self.dependencies) or "no step"
            raise Permanent(f"step {self.step_name} has no result of {name!r}: it has {known}", type="invalid_input")
        return validate(kind, value, f"result of {name}")

    async def _task_context(self, kind: Any) -> Any:
        value = self.context
        if self._step.get("context_omitted"):
            value = await self._services.document(self._step["context_href"], "context of the task")
        return validate(kind, value, "context")

    async def _checkpoint(self, value: Any) -> None:
        try:
            encoded = _json.encode(value, "checkpoint")
        except _json.NotJSON as error:
            raise Permanent(str(error), type="invalid_checkpoint") from None
        if len(encoded) > MAX_CHECKPOINT:
            message = f"checkpoint: has {len(encoded)} bytes, but the limit is {MAX_CHECKPOINT}"
            raise Permanent(message, type="invalid_checkpoint")
        await self._services.save({"step_uuid": self.step_uuid, "lease_token": self._step["lease_token"]}, encoded)
        self.last_checkpoint = _json.loads(encoded)


class Context(BaseContext):
    """The context of an attempt, for handlers that are async def."""

    @overload
    async def result(self, kind: type[T], name: str) -> T: ...

    @overload
    async def result(self, kind: Any, name: str) -> Any: ...

    async def result(self, kind: Any, name: str) -> Any:
        """Returns the result of a dependency as kind: a pydantic model, dict, Any or another type hint.

        A large result is fetched from the server, each time. A missing result, or one that does not
        validate, is a permanent failure.
        """
        return await self._result(kind, name)

    @overload
    async def task_context(self, kind: type[T]) -> T: ...

    @overload
    async def task_context(self, kind: Any = Any) -> Any: ...

    async def task_context(self, kind: Any = Any) -> Any:
        """Returns the whole context of the task. It is fetched if the step got it without its list."""
        return await self._task_context(kind)

    async def checkpoint(self, value: Any) -> None:
        """Saves JSON of at most 16 KiB for later attempts. It replaces the previous checkpoint.

        Each call is a request: save after a batch, not after each row. It raises StaleLease if the
        lease is lost.
        """
        await self._checkpoint(value)


class SyncContext(BaseContext):
    """The context of an attempt, for handlers that are plain functions. They run in threads."""

    @overload
    def result(self, kind: type[T], name: str) -> T: ...

    @overload
    def result(self, kind: Any, name: str) -> Any: ...

    def result(self, kind: Any, name: str) -> Any:
        """See Context.result."""
        return self._services.wait(self._result(kind, name))

    @overload
    def task_context(self, kind: type[T]) -> T: ...

    @overload
    def task_context(self, kind: Any = Any) -> Any: ...

    def task_context(self, kind: Any = Any) -> Any:
        """See Context.task_context."""
        return self._services.wait(self._task_context(kind))

    def checkpoint(self, value: Any) -> None:
        """See Context.checkpoint."""
        self._services.wait(self._checkpoint(value))


class StepLogger(logging.LoggerAdapter):  # type: ignore[type-arg] # it has no parameters before Python 3.11
    """Adds the ids of a step to the extra fields of each record, and keeps those of the caller."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, {**kwargs, "extra": {**(self.extra or {}), **(kwargs.get("extra") or {})}}


def log_fields(step: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the extra fields of log records about a step."""
    return {
        "task_uuid": step["task_uuid"],
        "step_uuid": step["step_uuid"],
        "step_name": step["name"],
        "attempt": step["attempt"],
        "correlation_id": step["correlation_id"],
    }


def validate(kind: Any, value: Any, place: str) -> Any:
    """Converts a JSON value to a type hint. A value that does not fit is a permanent failure."""
    if kind is Any or kind is object:
        return value
    adapter = kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)
    try:
        return adapter.validate_json(_json.encode(value, place))
    except ValidationError as error:
        raise Permanent(faults(error, place), type="invalid_input") from None


def faults(error: ValidationError, place: str) -> str:
    """Returns the fields and faults of a validation error in one line."""
    texts = []
    for fault in error.errors(include_url=False, include_context=False)[:5]:
        field = place
        for part in fault["loc"]:
            field += f"[{part}]" if isinstance(part, int) else f".{part}"
        texts.append(f"{field}: {fault['msg']}")
    more = error.error_count() - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more > 0 else "")
