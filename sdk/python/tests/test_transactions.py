"""Tasks that a program creates with psycopg in its own transaction, by tasker.create_task."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from psycopg.types.json import Jsonb

from tasker import NotFound, Worker
from tasker.testing import DevServer

TEMPLATE = """
namespace_name: transactions
name: fulfil
version: 1.0.0
input_schema: {type: object, required: [order_id]}
steps:
  - {name: ship, handler: {callable: ship}}
"""
CREATE = "SELECT tasker.create_task('transactions', %s, %s, idempotency_key => %s)"
Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture(scope="module")
def database(dev: DevServer, binary: str) -> Iterator[Connection]:
    """A connection to the database of the server, in which the program has a table of its own."""
    command = [binary, "dev", "--data-dir", str(dev._data), "--print-url"]
    private = urlsplit(subprocess.check_output(command, text=True).strip())
    url = private._replace(path="/tasker_test_clock").geturl()  # of servers with a test clock
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, task uuid)")
        dev.client.put_template(TEMPLATE)
        yield connection


def shipping() -> Worker:
    worker = Worker("transactions")

    @worker.step("ship")
    async def ship(order: dict[str, int]) -> int:
        return order["order_id"]

    return worker


def place_order(database: Connection, number: int, name: str = "fulfil", context: object = None) -> str:
    """Stores an order and requests its task. The caller begins the transaction."""
    context = {"order_id": number} if context is None else context
    found = database.execute(CREATE, (name, Jsonb(context), f"order-{number}")).fetchone()
    assert found
    database.execute("INSERT INTO orders VALUES (%s, %s)", (number, found[0]))
    return str(found[0])


def orders(database: Connection, number: int) -> list[str]:
    rows = database.execute("SELECT task FROM orders WHERE id = %s", (number,))
    return [str(row[0]) for row in rows]


def test_a_commit_creates_the_row_and_the_task(dev: DevServer, database: Connection) -> None:
    with dev.running(shipping()):
        with database.transaction():
            uuid = place_order(database, 1)
            with pytest.raises(NotFound):
                dev.client.get_task(uuid)
        task = dev.client.wait(uuid)
    assert orders(database, 1) == [uuid]
    assert task.status == "complete"
    assert task.steps
    assert task.steps[0].results["result"] == 1


def test_a_rollback_leaves_neither(dev: DevServer, database: Connection) -> None:
    with database.transaction(force_rollback=True):
        uuid = place_order(database, 2)
    with database.transaction():
        later = place_order(database, 3)
    with dev.running(shipping()):
        assert dev.client.wait(later).status == "complete"
    with pytest.raises(NotFound):
        dev.client.get_task(uuid)
    assert orders(database, 2) == []


def test_an_unknown_template_aborts_the_transaction(database: Connection) -> None:
    def order() -> None:
        with database.transaction():
            database.execute("INSERT INTO orders VALUES (4, NULL)")
            place_order(database, 4, "unknown")

    with pytest.raises(psycopg.Error, match=r"template transactions/unknown +not found") as failed:
        order()
    assert failed.value.sqlstate == "TK404"
    assert orders(database, 4) == []


def test_a_refused_request_is_shown_with_its_error(dev: DevServer, database: Connection) -> None:
    with database.transaction():
        uuid = place_order(database, 5, context={})
    with pytest.raises(NotFound, match="order_id"):
        dev.client.wait(uuid, timeout=30)
    listed = httpx.get(f"{dev.url}/v1/task-requests", params={"namespace": "transactions", "refused": "true"})
    (request,) = listed.json()["requests"]
    assert (request["task_uuid"], request["error_code"]) == (uuid, "INVALID")
    assert "order_id" in request["error_message"]
    assert orders(database, 5) == [uuid]
