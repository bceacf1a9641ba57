"""The context of an attempt, which handlers get as ctx."""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, overload

from pydantic import TypeAdapter, ValidationError

from . import _json
from .errors import Permanent

T = TypeVar("T")

MAX_CHECKPOINT = 16 << 10  # bytes
MAX_CACHED = 8 << 20  # bytes of fetched results that an attempt keeps
logger = logging.getLogger("tasker.step")

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:  # a class without parameters before Python 3.11
    _Adapter = logging.LoggerAdapter


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
        self._fetched: dict[str, Any] = {}
        self._saved: Any = step.get("checkpoint")
        self._cancelled: str | None = None
        self._logger: logging.LoggerAdapter[logging.Logger] | None = None
        self.metadata: dict[str, Any] = {}
        """Stored with the result for people. Other steps do not get it."""

    @property
    def step_uuid(self) -> str:
        """The id of the step. Use it as the idempotency key of the side effect."""
        return cast(str, self._step["step_uuid"])

    @property
    def task_uuid(self) -> str:
        return cast(str, self._step["task_uuid"])

    @property
    def correlation_id(self) -> str:
        return cast(str, self._step["correlation_id"])

    @property
    def namespace(self) -> str:
        return cast(str, self._step["namespace"])

    @property
    def task_name(self) -> str:
        return cast(str, self._step["task_name"])

    @property
    def task_version(self) -> str:
        return cast(str, self._step["task_version"])

    @property
    def step_name(self) -> str:
        return cast(str, self._step["name"])

    @property
    def attempt(self) -> int:
        """The number of this attempt. The first is 1."""
        return cast(int, self._step["attempt"])

    @property
    def max_attempts(self) -> int:
        return cast(int, self._step["max_attempts"])

    @property
    def initialization(self) -> Any:
        """The initialization that the template defines for the step."""
        return self._step.get("initialization")

    @property
    def context(self) -> Any:
        """The context of the task. For an item of a map step, it lacks the list: see task_context."""
        return self._step.get("context")

    @property
    def item(self) -> Any:
        """The element of the list, for an item of a map step. Otherwise None."""
        return self._step.get("item")

    @property
    def index(self) -> int | None:
        """The position of the item in the list, from 0, or None."""
        return cast("int | None", self._step.get("index"))

    @property
    def last_checkpoint(self) -> Any:
        """The latest checkpoint of this or an earlier attempt, or None."""
        return self._saved

    @property
    def cancelled(self) -> bool:
        """True if the handler must stop: the lease is lost, the time is over, or the worker ends."""
        return self._cancelled is not None

    @property
    def dependencies(self) -> list[str]:
        """The names of the dependencies that have a result, sorted."""
        return sorted({*self._step.get("dependency_results", {}), *self._step.get("dependency_result_refs", {})})

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds the ids of the step to each record, as extra fields."""
        if self._logger is None:
            self._logger = StepLogger(logger, log_fields(self._step))
        return self._logger

    async def _result(self, kind: Any, name: str) -> Any:
        inline = self._step.get("dependency_results", {})
        reference = self._step.get("dependency_result_refs", {}).get(name)
        if name in inline:
            value = inline[name]
        elif name in self._fetched:
            value = self._fetched[name]
        elif reference:
            what = f"result of step {name} ({reference['bytes']} bytes)"
            value = await self._services.document(reference["href"], what)
            kept = sum(self._step["dependency_result_refs"][n]["bytes"] for n in self._fetched)
            if kept + reference["bytes"] <= MAX_CACHED:
                self._fetched[name] = value
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
        lease = {"step_uuid": self.step_uuid, "lease_token": self._step["lease_token"]}
        await self._services.save(lease, encoded)
        self._saved = _json.loads(encoded)


class Context(BaseContext):
    """The context of an attempt, for handlers that are async def."""

    @overload
    async def result(self, kind: type[T], name: str) -> T: ...

    @overload
    async def result(self, kind: Any, name: str) -> Any: ...

    async def result(self, kind: Any, name: str) -> Any:
        """Returns the result of a dependency as kind: a pydantic model, dict, Any or another type hint.

        A large result is fetched from the server. A missing result, or one that does not validate,
        is a permanent failure.
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


class StepLogger(_Adapter):
    """Adds the ids of a step to the extra fields of each record, and keeps those of the caller."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


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
