"""Handlers: signatures, inputs, results and failures, without a server."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timezone
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from tasker import Context, Permanent, RetryAfter, StepError, SyncContext, Worker
from tasker.testing import run_step


class Order(BaseModel):
    total: int
    currency: str = "EUR"


class Payment(BaseModel):
    amount: int
    at: datetime


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    at: datetime


NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


async def only_input(order: Order) -> int:
    return order.total


async def input_and_ctx(order: Order, ctx: Context) -> list[Any]:
    return [order.total, ctx.attempt]


async def only_ctx(ctx: Context) -> Any:
    return ctx.context


async def by_hint(order: dict[str, Any], attempt: Context) -> list[Any]:
    return [order, attempt.attempt]


def in_thread(order: Order, ctx: SyncContext) -> list[Any]:
    return [order.total, ctx.attempt]


def nothing() -> None:
    return None


@pytest.mark.parametrize(
    ("handler", "want"),
    [
        (only_input, 5),
        (input_and_ctx, [5, 2]),
        (only_ctx, {"total": 5}),
        (by_hint, [{"total": 5}, 2]),
        (in_thread, [5, 2]),
        (nothing, None),
    ],
)
def test_a_handler_takes_input_and_ctx(handler: Any, want: Any) -> None:
    run = run_step(handler, {"total": 5}, attempt=2)
    assert (run.success, run.result) == (True, want), run.error


async def wrong_order(ctx: Context, order: Order) -> None: ...


async def sync_ctx(ctx: SyncContext) -> None: ...


def async_ctx(ctx: Context) -> None: ...


async def keyword(*, order: Order) -> None: ...


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (wrong_order, "must take"),
        (sync_ctx, "ctx of a async def must be Context"),
        (async_ctx, "must be SyncContext"),
        (keyword, "must take"),
    ],
)
def test_a_wrong_signature_is_refused_at_once(handler: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Worker("shop").add("x", handler)


def test_a_handler_name_is_registered_once() -> None:
    worker = Worker("shop")
    worker.add("x", nothing)
    with pytest.raises(ValueError, match="'x' is registered twice"):
        worker.add("x", nothing)
    with pytest.raises(ValueError, match="empty"):
        worker.add("", nothing)
    assert worker.handlers == ["x"]


def test_a_local_type_in_a_hint_is_explained() -> None:
    class Local(BaseModel):
        pass

    async def handler(value: Local) -> None: ...

    with pytest.raises(TypeError, match="at the top of the module"):
        Worker("shop").add("x", handler)


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({}, "input.total: Field required"),
        ({"total": "five"}, "input.total: Input should be a valid integer"),
        ([], "input: Input should be an object"),
    ],
)
def test_an_invalid_input_is_permanent_and_names_the_field(context: Any, message: str) -> None:
    run = run_step(only_input, context)
    assert not run.success
    assert run.error["type"] == "invalid_input"
    assert run.error["retryable"] is False
    assert message in run.error["message"]


async def strict_input(value: Strict) -> str:
    return value.at.isoformat()


async def positive(value: Annotated[dict[str, int], Field(min_length=1)]) -> int:
    return len(value)


def test_an_input_is_read_as_json() -> None:
    assert run_step(strict_input, {"at": "2026-01-02T00:00:00Z"}).result == "2026-01-02T00:00:00+00:00"
    assert not run_step(positive, {}).success


async def model_result() -> Payment:
    return Payment(amount=1, at=NOW)


async def list_of_models() -> list[Payment]:
    return [Payment(amount=1, at=NOW)]


async def coerced() -> Payment:
    return {"amount": 1, "at": "2026-01-02T00:00:00Z"}  # type: ignore[return-value]


async def model_in_dict() -> dict[str, Any]:
    return {"payment": Payment(amount=1, at=NOW)}


@pytest.mark.parametrize("handler", [model_result, list_of_models, coerced, model_in_dict])
def test_models_are_results(handler: Any) -> None:
    payment = {"amount": 1, "at": "2026-01-02T00:00:00Z"}
    assert run_step(handler).result in (payment, [payment], {"payment": payment})


async def wrong_model() -> Payment:
    return {"amount": "x", "at": NOW}  # type: ignore[return-value]


async def date_in_list() -> dict[str, Any]:
    return {"items": [{"when": "x"}, {"when": NOW}]}


async def not_a_number() -> Any:
    return {"value": float("nan")}


async def infinite_in_model() -> list[Any]:
    return [float("inf")]


async def surrogate() -> str:
    return "a\ud800"


async def strange_key() -> dict[Any, Any]:
    return {"a": {(1, 2): 3}}


async def circular() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


async def a_set() -> Any:
    return {"tags": {1}}


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (wrong_model, "result.amount: Input should be a valid integer"),
        (date_in_list, "result.items[1].when: datetime is not JSON"),
        (not_a_number, "result.value: nan is not a JSON number"),
        (infinite_in_model, "result[0]: inf is not a JSON number"),
        (surrogate, "result: the text has half of a surrogate pair"),
        (strange_key, "result.a: key (1, 2) is not a string"),
        (circular, "nested too deeply"),
        (a_set, "result.tags: set is not JSON"),
    ],
)
def test_a_result_that_is_not_json_is_permanent_and_names_the_place(handler: Any, message: str) -> None:
    run = run_step(handler)
    assert (run.success, run.error["type"], run.error["retryable"]) == (False, "invalid_result", False)
    assert message in run.error["message"]


async def boom() -> None:
    raise ZeroDivisionError("no")


async def permanent() -> None:
    raise Permanent("declined", type="card_declined", context={"code": 51}, fingerprint="card")


async def later() -> None:
    raise RetryAfter(1.5)


async def retryable() -> None:
    raise StepError("again", context=object())


def exits() -> None:
    raise SystemExit(3)


async def cancels_itself() -> None:
    raise asyncio.CancelledError


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


async def unreadable() -> None:
    raise Unreadable


@pytest.mark.parametrize(
    ("handler", "want"),
    [
        (boom, {"message": "no", "type": "ZeroDivisionError"}),
        (
            permanent,
            {"message": "declined", "type": "card_declined", "retryable": False, "fingerprint": "card"},
        ),
        (later, {"message": "retry after 1.5 seconds", "retry_after_ms": 1500, "retryable": True}),
        (retryable, {"message": "again", "type": "StepError", "retryable": True}),
        (exits, {"message": "3", "type": "SystemExit"}),
        (cancels_itself, {"message": "the handler cancelled itself", "type": "CancelledError"}),
        (unreadable, {"message": "an exception of type Unreadable without a readable message"}),
    ],
)
def test_exceptions_become_failures(handler: Any, want: dict[str, Any]) -> None:
    error = run_step(handler).error
    assert {k: error[k] for k in want} == want


def test_an_exception_has_its_stack_as_evidence() -> None:
    assert "ZeroDivisionError" in run_step(boom).error["context"]["stack"]


async def uses_results(ctx: Context) -> Any:
    return [await ctx.result(Payment, "charge"), await ctx.result(Any, "count"), ctx.dependencies]


async def missing_result(ctx: Context) -> Any:
    return await ctx.result(Any, "ship")


async def wrong_result(ctx: Context) -> Any:
    return await ctx.result(Order, "charge")


def sync_results(ctx: SyncContext) -> int:
    return ctx.result(Payment, "charge").amount


def test_results_of_dependencies_are_validated() -> None:
    results = {"charge": Payment(amount=1, at=NOW), "count": 3}
    assert run_step(uses_results, results=results).result[1:] == [3, ["charge", "count"]]
    assert run_step(sync_results, results=results).result == 1
    error = run_step(missing_result, results=results).error
    assert error["message"] == "step missing_result has no result of 'ship': it has charge, count"
    assert run_step(wrong_result, results=results).error["message"] == "result of charge.total: Field required"


async def saves(ctx: Context) -> Any:
    before = ctx.last_checkpoint
    await ctx.checkpoint({"row": 2})
    return [before, ctx.last_checkpoint]


def saves_in_thread(ctx: SyncContext) -> Any:
    ctx.checkpoint({"row": 2})
    return [{"row": 1}, ctx.last_checkpoint]


async def saves_too_much(ctx: Context) -> None:
    await ctx.checkpoint("x" * 20_000)


async def saves_no_json(ctx: Context) -> None:
    await ctx.checkpoint({"at": NOW})


@pytest.mark.parametrize("handler", [saves, saves_in_thread])
def test_checkpoints_are_saved(handler: Any) -> None:
    run = run_step(handler, checkpoint={"row": 1})
    assert run.result == [{"row": 1}, {"row": 2}]
    assert run.checkpoints == [{"row": 2}]


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (saves_too_much, "checkpoint: has 20002 bytes, but the limit is 16384"),
        (saves_no_json, "checkpoint.at: datetime is not JSON"),
    ],
)
def test_a_checkpoint_that_cannot_be_stored_is_permanent(handler: Any, message: str) -> None:
    error = run_step(handler).error
    assert (error["type"], error["retryable"], error["message"]) == ("invalid_checkpoint", False, message)


async def item_of(ctx: Context) -> Any:
    return [ctx.item, ctx.index]


def test_items_have_an_index() -> None:
    assert run_step(item_of, item="a", index=3).result == ["a", 3]
    assert run_step(item_of).result == [None, None]


async def everything(ctx: Context) -> Any:
    ctx.metadata["ms"] = 3
    return [ctx.step_name, ctx.namespace, ctx.task_name, ctx.task_version, ctx.max_attempts, ctx.initialization]


def test_a_context_has_ids_and_metadata() -> None:
    run = run_step(everything, initialization={"a": 1})
    assert run.result == ["everything", "test", "test", "1.0.0", 3, {"a": 1}]
    assert run.metadata == {"ms": 3}


async def logs(ctx: Context) -> None:
    ctx.logger.info("charged %d", 5, extra={"amount": 5})


def test_log_records_have_ids(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tasker.step"):
        run_step(logs, attempt=2)
    fields = vars(caplog.records[-1])
    assert (caplog.messages[-1], fields["attempt"], fields["step_name"], fields["amount"]) == (
        "charged 5",
        2,
        "logs",
        5,
    )
    assert {"task_uuid", "step_uuid", "correlation_id"} <= fields.keys()


async def test_run_step_works_inside_an_event_loop() -> None:
    assert run_step(only_input, {"total": 1}).result == 1
