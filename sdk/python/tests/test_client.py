"""The clients without a server: requests, retries, errors and the wait for a task."""

from __future__ import annotations

import inspect
import json
from datetime import datetime, timezone
from typing import Any

import httpx
import pytest

import tasker.client
from tasker import AsyncClient, Client, Conflict, Forbidden, Invalid, NotFound, TaskerError, Unavailable, WaitTimeout
from tasker._http import ForeignAnswer
from tasker._options import new_task

from .fake import error, page, unavailable

TASK: dict[str, Any] = {
    "task_uuid": "t",
    "namespace": "shop",
    "name": "order",
    "version": "1.0.0",
    "status": "complete",
    "state_since": "2026-01-01T00:00:00Z",
    "priority": 0,
    "initiator": "",
    "source_system": "",
    "reason": "",
    "tags": [],
    "correlation_id": "c",
    "merged_requests": 0,
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z",
    "total_steps": 1,
    "pending_steps": 0,
    "in_progress_steps": 0,
    "completed_steps": 1,
    "skipped_steps": 0,
    "failed_steps": 0,
    "ready_steps": 0,
    "completion_percentage": 100,
    "dead_lettered": False,
    "key_of_a_newer_server": {"a": 1},
}


class Script:
    """Answers requests in order and keeps them."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)


def client(script: Script, **options: Any) -> Client:
    return Client("http://tasker.test", transport=httpx.MockTransport(script), **options)


def test_create_task_sends_only_given_fields() -> None:
    script = Script(TASK)
    task = client(script, key="secret").create_task("shop", "order", {"total": 5}, tags=["a"])
    (request,) = script.requests
    assert json.loads(request.content) == {
        "namespace": "shop",
        "name": "order",
        "context": {"total": 5},
        "tags": ["a"],
    }
    assert request.headers["Authorization"] == "Bearer secret"
    assert (task.task_uuid, task.status) == ("t", "complete")


async def test_the_asynchronous_client_does_the_same() -> None:
    script = Script(TASK)
    async with AsyncClient("http://tasker.test", transport=httpx.MockTransport(script)) as c:
        assert (await c.create_task("shop", "order")).task_uuid == "t"


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type) -> set[str]:
        return {n for n, _ in inspect.getmembers(kind, inspect.isfunction) if not n.startswith("__")}

    assert methods(AsyncClient) - {"aclose"} == methods(Client) - {"close"}


def test_a_wrong_option_is_refused_before_the_request() -> None:
    with pytest.raises(Invalid, match=r"task.priority: Input should be less than or equal to 1000"):
        new_task("shop", "order", {}, priority=5000)
    with pytest.raises(Invalid, match=r"task.prio: Extra inputs are not permitted"):
        new_task("shop", "order", {}, prio=5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(404, "NOT_FOUND", "no task t"), NotFound),
        (error(409, "CONFLICT", "the step is complete"), Conflict),
        (error(403, "FORBIDDEN", "lacks tasks:read"), Forbidden),
        (error(418, "TEAPOT", "of a newer server"), TaskerError),
        (page(200), ForeignAnswer),
        (httpx.Response(200, json={"task_uuid": "t"}), ForeignAnswer),
        (httpx.Response(302, headers={"Location": "https://elsewhere"}), ForeignAnswer),
    ],
)
def test_errors_have_the_class_of_their_code(answer: httpx.Response, kind: type[TaskerError]) -> None:
    with pytest.raises(kind) as failed:
        client(Script(*[answer] * 4)).get_task("t")
    assert type(failed.value) is kind
    if kind is not ForeignAnswer:
        assert failed.value.code == answer.json()["error"]["code"]
        assert failed.value.message == answer.json()["error"]["message"]


def test_an_error_has_details_and_the_delay() -> None:
    body = {"error": {"code": "INVALID", "message": "bad", "details": [{"path": "steps"}]}}
    with pytest.raises(Invalid) as failed:
        client(Script(httpx.Response(400, json=body, headers={"Retry-After": "3"}))).get_task("t")
    assert failed.value.details == [{"path": "steps"}]
    assert failed.value.retry_after == 3.0


def test_a_page_of_a_proxy_is_quoted_without_the_key() -> None:
    answer = httpx.Response(502, text="Bearer secret was sent")
    with pytest.raises(ForeignAnswer, match=r"responded with 502 Bad Gateway: Bearer \[key\] was sent; is it"):
        client(Script(*[answer] * 4), key="secret").get_task("t")


@pytest.mark.parametrize("failure", [unavailable(), page(502), httpx.ReadTimeout("slow"), httpx.ConnectError("no")])
def test_repeatable_requests_are_sent_again(failure: Any) -> None:
    script = Script(failure, failure, TASK)
    assert client(script).get_task("t").task_uuid == "t"
    assert len(script.requests) == 3


def test_a_task_without_a_key_is_created_at_most_once() -> None:
    script = Script(httpx.ReadTimeout("slow"), TASK)
    with pytest.raises(Unavailable, match=r"cannot reach http://tasker.test: slow"):
        client(script).create_task("shop", "order")
    assert len(script.requests) == 1
    assert client(Script(httpx.ConnectError("no"), TASK)).create_task("shop", "order").task_uuid == "t"
    keyed = Script(httpx.ReadTimeout("slow"), TASK)
    assert client(keyed).create_task("shop", "order", idempotency_key="k").task_uuid == "t"


def test_an_unreachable_server_is_an_error_at_last() -> None:
    script = Script(*[httpx.ConnectError("refused")] * 4)
    with pytest.raises(Unavailable, match="is the server running"):
        client(script).get_task("t")
    assert len(script.requests) == 4


def test_a_step_action_has_one_key_for_all_its_retries() -> None:
    script = Script(unavailable(), error(409, "CONFLICT", "not failed"))
    with pytest.raises(Conflict):
        client(script).reset_step("t", "charge", "fixed", "operator", discard_checkpoint=True)
    first, second = script.requests
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    assert json.loads(first.content) == {
        "action_type": "reset_for_retry",
        "reason": "fixed",
        "reset_by": "operator",
        "discard_checkpoint": True,
    }


def test_filters_are_sent_in_the_form_of_the_api() -> None:
    script = Script({"tasks": [], "pagination": {"limit": 1, "offset": 0, "count": 0, "has_more": False}})
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    client(script).list_tasks(tag=["a", "b"], overdue=True, dead_lettered=False, created_after=moment, limit=1)
    want = "tag=a&tag=b&overdue=true&dead_lettered=false&created_after=2026-01-01T00%3A00%3A00%2B00%3A00&limit=1"
    assert str(script.requests[0].url.query, "ascii") == want


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_path_element_cannot_change_the_path(name: str) -> None:
    with pytest.raises(Invalid, match="invalid path element"):
        client(Script()).get_task(name)


def test_names_are_escaped() -> None:
    script = Script(TASK)
    client(script).get_task("a/b?c")
    assert script.requests[0].url.raw_path == b"/v1/tasks/a%2Fb%3Fc"


@pytest.mark.parametrize("url", ["tasker.test:8080", "ftp://tasker", "http://", "http://a/?b=c"])
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="invalid server URL"):
        Client(url)


def test_a_wrong_key_is_refused() -> None:
    with pytest.raises(Invalid, match="one word of printable ASCII"):
        Client(key="two words")


@pytest.mark.parametrize(
    "end",
    [
        {"status": "complete"},
        {"status": "cancelled"},
        {"status": "resolved_manually"},
        {"status": "error", "dead_lettered": True, "dead_letter_mark": "permanently_failed"},
        {"status": "error", "dead_lettered": True, "dead_letter_mark": "under_investigation"},
    ],
)
def test_wait_returns_when_the_task_has_settled(end: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(tasker.client.time, "sleep", slept.append)
    monkeypatch.setattr(tasker.client, "monotonic", lambda: 7.0)
    script = Script(TASK | {"status": "steps_in_process"}, TASK | end)
    assert client(script).wait("t", timeout=5).status == end["status"]
    assert script.requests[0].url.params["wait_ms"] == "5000"
    assert slept == [0.5]


def test_wait_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasker.client.time, "sleep", lambda _: None)
    script = Script(*[TASK | {"status": "waiting_for_retry"}] * 100_000)
    with pytest.raises(WaitTimeout, match=r"task t is waiting_for_retry after 0.01 seconds") as failed:
        client(script).wait("t", timeout=0.01)
    assert failed.value.task.task_uuid == "t"
