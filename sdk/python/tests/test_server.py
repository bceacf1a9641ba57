"""The SDK against a real server: workflows, repairs, the clock and the conformance program."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import BaseModel

import tasker.fastapi
from tasker import AsyncClient, Conflict, Context, Invalid, NotFound, SyncContext, WaitTimeout, Worker
from tasker.models import CreateTask
from tasker.testing import DevServer, Fail, Return

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent


class Order(BaseModel):
    total: int
    refunds: list[int] = []


class Reservation(BaseModel):
    shelf: str


class Summary(BaseModel):
    count: int


def template(namespace: str, steps: str) -> str:
    return f"namespace_name: {namespace}\nname: order\nversion: 1.0.0\nsteps:\n{steps}"


ORDER = """
  - name: reserve
    handler: {callable: reserve_stock}
  - name: charge
    handler: {callable: charge_card}
    dependencies: [reserve]
    retry: {max_attempts: 2, backoff: constant, backoff_base_ms: 600000, max_backoff_ms: 600000}
"""


def shop(namespace: str) -> Worker:
    worker = Worker(namespace, name=namespace, drain_timeout=1)

    @worker.step("reserve_stock")
    async def reserve(order: Order, ctx: Context) -> Reservation:
        return Reservation(shelf=f"{ctx.attempt}-{order.total}")

    @worker.step("charge_card")
    def charge(order: Order, ctx: SyncContext) -> int:
        ctx.checkpoint({"charged": order.total})
        return order.total + len(ctx.result(Reservation, "reserve").shelf)

    return worker


@pytest.fixture
def namespace(dev: DevServer, request: pytest.FixtureRequest) -> str:
    """A namespace of its own with the template order."""
    name = re.sub(r"\W+", "_", request.node.name)[:60].strip("_")
    dev.client.put_template(template(name, ORDER))
    return name


def test_a_workflow_runs(dev: DevServer, namespace: str) -> None:
    with dev.running(shop(namespace)):
        task = dev.client.wait(dev.client.create_task(namespace, "order", {"total": 5}))
    assert task.status == "complete"
    assert task.steps
    assert [s.results["result"] for s in task.steps] == [{"shelf": "1-5"}, 8]


def test_scripted_outcomes_and_the_clock(dev: DevServer, namespace: str) -> None:
    outcomes = {"charge": [Fail("gateway timeout"), Return(7)]}
    with dev.running(shop(namespace), outcomes):
        task = dev.client.create_task(namespace, "order", {"total": 5})
        assert dev.until(task, "waiting_for_retry").status == "waiting_for_retry"
        with pytest.raises(WaitTimeout, match="is waiting_for_retry after 0 seconds"):
            dev.until(task.task_uuid, "complete", timeout=0)
        dev.advance(600)
        task = dev.client.wait(task)
    assert task.steps
    assert (task.status, task.steps[1].attempts, task.steps[1].results["result"]) == ("complete", 2, 7)


def wait_for(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_worker_needs_no_handler_for_a_scripted_step(dev: DevServer, namespace: str) -> None:
    worker = Worker(namespace)
    with dev.running(worker, {"reserve_stock": [Return({"shelf": "a"})], "charge_card": [Return(1)]}):
        assert dev.client.wait(dev.client.create_task(namespace, "order", {"total": 5})).status == "complete"


def test_an_invalid_input_opens_an_investigation_that_is_repaired(dev: DevServer, namespace: str) -> None:
    client = dev.client
    with dev.running(shop(namespace), {"charge": [Fail("declined", type="card_declined", permanent=True)]}):
        task = client.wait(client.create_task(namespace, "order", {"total": 5}))
        assert (task.status, task.dead_letter_mark) == ("error", "under_investigation")
        found = client.investigation_of(task.task_uuid)
        queue = client.investigation_queue(namespace=namespace)
        assert [q.dlq_entry_uuid for q in queue] == [found.dlq_entry_uuid]
        assert found.dlq_entry_uuid in [e.dlq_entry_uuid for e in client.list_investigations(status="pending")]
        client.reset_step(task.task_uuid, "charge", "the card works again", "operator")
        wait_for(lambda: client.get_task(task.task_uuid).status == "complete")
    ended = client.resolve_investigation(found.dlq_entry_uuid, "repaired", "operator")
    assert ended.resolution_status == "manually_resolved"
    assert client.get_investigation(found.dlq_entry_uuid).resolved_by == "operator"


def test_steps_are_resolved_and_completed_by_operators(dev: DevServer, namespace: str) -> None:
    client = dev.client
    outcomes = {"reserve": [Fail("no", permanent=True)], "charge": [Fail("no", permanent=True)]}
    with dev.running(shop(namespace), outcomes):
        task = client.wait(client.create_task(namespace, "order", {"total": 5}))
        client.complete_step(task.task_uuid, "reserve", {"shelf": "by hand"}, "counted", "operator")
        wait_for(lambda: client.get_step(task.task_uuid, "charge").current_state == "error")
        client.resolve_step(task.task_uuid, "charge", "paid in cash", "operator")
        wait_for(lambda: client.get_task(task.task_uuid).status == "complete")
    with pytest.raises(Conflict):
        client.reset_step(task.task_uuid, "charge", "again", "operator")
    assert [s.name for s in client.list_steps(task.task_uuid)] == ["reserve", "charge"]


def test_tasks_are_created_listed_and_cancelled(dev: DevServer, namespace: str) -> None:
    client = dev.client
    new = CreateTask(namespace=namespace, name="order", context={"total": 1}, idempotency_key="a", tags=["t"])
    created = client.create_tasks([new, CreateTask(namespace=namespace, name="order", context={"total": 2})])
    assert [t.created for t in created.tasks] == [True, True]
    again = client.create_task(namespace, "order", {"total": 1}, idempotency_key="a", tags=["t"])
    assert again.task_uuid == created.tasks[0].task_uuid
    assert len(client.list_tasks(namespace=namespace).tasks) == 2
    assert [t.task_uuid for t in client.list_tasks(namespace=namespace, tag=["t"]).tasks] == [again.task_uuid]
    assert client.cancel_task(again.task_uuid, "wrong", "operator").status == "cancelled"
    cancelled = client.cancel_tasks("all", "operator", namespace=namespace, name="order")
    assert (cancelled.cancelled, cancelled.more) == (1, False)


def test_external_steps_are_answered(dev: DevServer) -> None:
    steps = "  - name: approve\n    type: external\n  - name: check\n    type: external\n"
    dev.client.put_template(template("external", steps))
    task = dev.client.create_task("external", "order")
    step = dev.client.complete_external_step(task.task_uuid, "approve", {"ok": True}, source="test")
    assert step.results["result"] == {"ok": True}
    with pytest.raises(Conflict):
        dev.client.complete_external_step(task.task_uuid, "approve", {"ok": False})
    failed = dev.client.fail_external_step(task.task_uuid, "check", "no answer")
    assert failed.error["message"] == "no answer"


def test_templates_are_registered_and_read(dev: DevServer, namespace: str) -> None:
    assert dev.client.put_template(template(namespace, ORDER)).created is False
    assert dev.client.get_template(namespace, "order", "1.0.0").step_count == 2
    assert [t.name for t in dev.client.list_templates(namespace).templates] == ["order"]
    as_mapping = {"namespace_name": namespace, "name": "other", "version": "1.0.0"}
    steps = [{"name": "a", "handler": {"callable": "b"}}]
    assert dev.client.put_template({**as_mapping, "steps": steps}).created is True
    with pytest.raises(Invalid) as failed:
        dev.client.put_template(template(namespace, "  - name: a\n    handler: {callabel: b}\n"))
    assert failed.value.details
    with pytest.raises(NotFound):
        dev.client.get_template(namespace, "order", "9.9.9")


def test_items_of_a_map_step(dev: DevServer) -> None:
    steps = """
  - name: refund
    type: map
    over: context.refunds
    handler: {callable: refund}
  - name: sum
    handler: {callable: sum_up}
    dependencies: [refund]
"""
    dev.client.put_template(template("maps", steps))
    worker = Worker("maps", concurrency=4)
    seen: list[tuple[Any, int | None, list[str]]] = []

    @worker.step("refund")
    async def refund(order: Order, ctx: Context) -> int:
        seen.append((ctx.item, ctx.index, sorted(ctx.context)))
        return int(ctx.item) * len(order.refunds)  # the model names the list: it is fetched

    @worker.step("sum_up")
    async def sum_up(ctx: Context) -> Any:
        return (await ctx.result(dict[str, Any], "refund"))["results"]

    with dev.running(worker):
        task = dev.client.wait(dev.client.create_task("maps", "order", {"total": 1, "refunds": [5, 6]}))
    assert task.status == "complete"
    assert dev.client.get_step(task.task_uuid, "sum").results["result"] == [10, 12]
    assert sorted(seen) == [(5, 0, ["total"]), (6, 1, ["total"])]


async def test_the_asynchronous_client_waits(dev: DevServer, namespace: str) -> None:
    with dev.running(shop(namespace)):
        async with AsyncClient(dev.url) as client:
            task = await client.wait(await client.create_task(namespace, "order", {"total": 5}), timeout=30)
    assert task.status == "complete"


def test_a_worker_in_a_fastapi_application(dev: DevServer, namespace: str) -> None:
    worker = Worker(namespace, url=dev.url)
    worker._handlers = shop(namespace)._handlers
    app = FastAPI(lifespan=tasker.fastapi.lifespan(worker))

    @app.get("/orders/{total}")
    async def order(total: int) -> str:
        async with AsyncClient(dev.url) as client:
            return (await client.wait(await client.create_task(namespace, "order", {"total": total}))).status

    with TestClient(app) as browser:
        assert browser.get("/orders/3").json() == "complete"


def test_a_refused_worker_fails_the_start_of_an_application(dev: DevServer) -> None:
    worker = Worker("no*wildcards", url=dev.url)
    worker.add("a", lambda: None)
    with pytest.raises(Invalid, match="wildcards"), TestClient(FastAPI(lifespan=tasker.fastapi.lifespan(worker))):
        pass


def environment(dev: DevServer, **more: str) -> dict[str, str]:
    return {**os.environ, "TASKER_URL": dev.url, "PYTHONPATH": f"{PACKAGE / 'src'}:{PACKAGE}", **more}


def test_the_conformance_program_runs_and_drains(dev: DevServer) -> None:
    handlers = ["echo", "unicode", "typed", "panic", "nan_result", "bad_result", "checkpoint"]
    steps = "".join(f"  - name: {h}\n    handler: {{callable: {h}}}\n" for h in handlers)
    dev.client.put_template(template("conformance", steps))
    command = [sys.executable, "-m", "conformance_worker"]
    with subprocess.Popen(command, env=environment(dev), stderr=subprocess.PIPE, text=True) as program:
        context = {"text": "aé😀", "amount": "x", "currency": "EUR"}
        task = dev.client.create_task("conformance", "order", context)

        def step(name: str) -> Any:
            return dev.client.get_step(task.task_uuid, name)

        wait_for(lambda: all(step(h).results or step(h).error for h in handlers))
        assert step("echo").results["result"]["context"] == context
        assert step("unicode").results["result"] == {"text": "aé😀", "length": 3}
        assert "input.amount" in step("typed").error["message"]
        assert step("panic").error["type"] == "ZeroDivisionError"
        assert "result.value" in step("nan_result").error["message"]
        assert "result.items[1].when" in step("bad_result").error["message"]
        assert step("checkpoint").error["message"] == "at row 1"
        program.send_signal(signal.SIGTERM)
        assert program.wait(20) == 0


def test_the_conformance_program_ends_with_one_sentence(dev: DevServer, tmp_path: Path) -> None:
    env = environment(dev, CONFORMANCE_NAMESPACE="no*wildcards")
    command = [sys.executable, "-m", "conformance_worker"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert re.fullmatch(r"tasker: the server at http\S+ refuses worker conformance: .*wildcards.*\n", ended.stderr)
