"""Handlers: their signatures, their execution, and the outcome of an attempt."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import traceback
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from . import _json
from .context import BaseContext, Context, SyncContext, faults, validate
from .errors import Permanent, StepError, TaskerError

PLAIN = (dict, list, tuple, str, int, float, bool, type(None), object, Any, Mapping, Sequence)
MAX_MESSAGE = 64 << 10
MAX_STACK = 16 << 10

LOST = "lease lost"
INTERRUPTED = "worker ends"
TIMEOUT = "timeout"


@dataclass
class Outcome:
    """The end of an attempt, as it is reported. result is JSON."""

    success: bool
    result: bytes = b"null"
    error: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] | None = None

    def encode(self, lease: Mapping[str, str]) -> bytes:
        """Returns the JSON object of a report. Evidence that is not JSON is left out."""
        body: dict[str, Any] = {**lease, "success": self.success}
        if not self.success:
            error = {k: _storable(v) if isinstance(v, str) else v for k, v in self.error.items() if v is not None}
            if "context" in error:
                error["context"] = _evidence(error["context"], "error.context")
            body["error"] = error
        if self.metadata:
            body["metadata"] = _evidence(self.metadata, "metadata")
        encoded = _json.encode(body, "outcome")
        return encoded[:-1] + b',"result":' + self.result + b"}" if self.success else encoded


def _evidence(value: Any, place: str) -> Any:
    """Returns a value, or why it cannot be reported."""
    try:
        _json.encode(value, place)
    except _json.NotJSON as fault:
        return {"dropped": f"the evidence is not JSON: {fault}"}
    return value


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


class Handler:
    """A function with the type hints of its input and result."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        """It raises TypeError if the function cannot be a handler."""
        self.name = name
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        hints = _hints(function)
        self._input: TypeAdapter[Any] | None = None
        self._takes = [self._argument(p, hints) for p in inspect.signature(function).parameters.values()]
        if self._takes not in ([], ["input"], ["ctx"], ["input", "ctx"]):
            raise TypeError(f"handler {name}: must take (input), (input, ctx), (ctx) or nothing, not {self._takes}")
        result = hints.get("return", Any)
        self._result = None if _is_plain(result) else TypeAdapter[Any](result)

    def _argument(self, parameter: inspect.Parameter, hints: dict[str, Any]) -> str:
        """Returns "ctx" or "input" for a parameter."""
        hint = hints.get(parameter.name, Any)
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            return f"{parameter}"
        if isinstance(hint, type) and issubclass(hint, BaseContext):
            wanted = Context if self.is_async else SyncContext
            if not issubclass(wanted, hint):
                kind = "async def" if self.is_async else "def"
                raise TypeError(f"handler {self.name}: {parameter.name} of a {kind} must be {wanted.__name__}")
            return "ctx"
        if parameter.name == "ctx":
            return "ctx"
        self._input = None if hint in (Any, object, dict) else TypeAdapter[Any](hint)
        return "input"

    async def arguments(self, ctx: BaseContext) -> list[Any]:
        """Returns the arguments of the function. An input that does not validate is permanent."""
        return [ctx if name == "ctx" else await self._read_input(ctx) for name in self._takes]

    async def _read_input(self, ctx: BaseContext) -> Any:
        if self._input is None:
            return ctx.context
        omitted = ctx._step.get("context_omitted") or ()
        if omitted and any(pointer.split("/")[1] in self._fields() for pointer in omitted):
            return await ctx._task_context(self._input)
        return validate(self._input, ctx.context, "input")

    def _fields(self) -> Mapping[str, Any]:
        """Returns the fields that the input type names."""
        schema = self._input.json_schema() if self._input else {}
        if "$ref" in schema:
            schema = schema["$defs"][schema["$ref"].rpartition("/")[2]]
        return typing.cast("Mapping[str, Any]", schema.get("properties", {}))

    def encode_result(self, value: Any) -> bytes:
        """Returns the JSON of a result. A result that is not JSON is a permanent failure."""
        try:
            if self._result is not None:
                value = self._result.dump_python(self._result.validate_python(value), mode="json", by_alias=True)
            return _json.encode(value, "result")
        except ValidationError as error:
            raise Permanent(faults(error, "result"), type="invalid_result") from None
        except _json.NotJSON as error:
            raise Permanent(str(error), type="invalid_result") from None


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        name = getattr(function, "__qualname__", function)
        raise TypeError(f"handler {name}: {error}; define the types of its hints at the top of the module") from None


def _is_plain(hint: Any) -> bool:
    """Reports whether a type hint consists of JSON types only, so that nothing must be converted."""
    origin = typing.get_origin(hint)
    if origin is None:
        return hint in PLAIN
    if origin is typing.Union or origin is types.UnionType or origin in PLAIN:
        return all(_is_plain(a) for a in typing.get_args(hint) if a is not ...)
    return False


async def execute(handler: Handler, ctx: BaseContext) -> Outcome:
    """Runs a handler and returns the outcome. A function that is not async runs in a thread."""
    try:
        args = await handler.arguments(ctx)
        if handler.is_async:
            value = await handler.function(*args)
        else:
            value = await _call_in_thread(handler.function, args)
        outcome = Outcome(True, handler.encode_result(value))
    except asyncio.CancelledError as error:
        outcome = _cancelled(ctx, error)
    except (Exception, SystemExit) as error:
        outcome = Outcome(False, error=failure(error))
    outcome.metadata = ctx.metadata
    return outcome


async def _call_in_thread(function: Callable[..., Any], args: list[Any]) -> Any:
    """Runs a function in a new daemon thread, which does not keep a program alive.

    A cancellation is ignored until the function returns.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            settle, value = future.set_result, context.run(function, *args)
        except StopIteration:  # a future does not accept it
            settle, value = future.set_exception, RuntimeError("the handler raised StopIteration")
        except BaseException as error:
            settle, value = future.set_exception, error
        try:
            loop.call_soon_threadsafe(settle, value)
        except RuntimeError:  # the loop is closed: the worker ended without this handler
            pass

    threading.Thread(target=work, name="tasker-step", daemon=True).start()
    return await future


def _cancelled(ctx: BaseContext, error: BaseException) -> Outcome:
    if ctx._cancelled == TIMEOUT:
        message = "the handler did not end within the timeout of the step"
        return Outcome(False, error={"message": message, "type": "step_timeout"})
    return Outcome(False, error={**failure(error), "message": ctx._cancelled or "the handler cancelled itself"})


def failure(error: BaseException) -> dict[str, Any]:
    """Returns the error of a report for an exception."""
    report: dict[str, Any] = {"message": _message(error), "type": type(error).__name__}
    if isinstance(error, StepError):
        report |= {"type": error.type, "retryable": error.retryable, "fingerprint": error.fingerprint}
        report["context"] = error.context
        if error.retry_after is not None:
            report["retry_after_ms"] = round(error.retry_after * 1000)
        return report
    if isinstance(error, TaskerError):
        report["context"] = {"code": error.code}
        return report
    stack = "".join(traceback.format_exception(error))
    report["context"] = {"stack": _storable(stack[-MAX_STACK:])}
    return report


def _message(error: BaseException) -> str:
    """Returns the text of an exception, even if its __str__ fails."""
    try:
        text = str(error) or repr(error)
    except Exception:
        text = f"an exception of type {type(error).__name__} without a readable message"
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + " [cut]"
