"""The worker against a server in memory: reports, leases, drains and wrong answers."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

import tasker._report
import tasker.worker
from tasker import Context, HandlersStuck, Invalid, NotSupported, SyncContext, Unauthorized, Worker

from .conftest import serving, worker_for
from .fake import FakeServer, error, page, unavailable


async def echo(ctx: Context) -> Any:
    return ctx.context


def echoing(server: FakeServer, **options: Any) -> Worker:
    worker = worker_for(server, **options)
    worker.add("echo", echo)
    return worker


async def test_it_registers_claims_and_reports(server: FakeServer) -> None:
    server.add("echo", {"a": 1})
    async with serving(echoing(server, version="1.2", concurrency=3)):
        await server.until(lambda: bool(server.results))
    registration = server.bodies("register")[0]
    assert registration == {
        "name": "test",
        "namespaces": ["shop"],
        "handlers": ["echo"],
        "version": "1.2",
        "max_concurrency": 3,
        "protocol": 1,
    }
    assert server.bodies("claims")[0]["max"] == 3
    (result,) = server.results.values()
    assert (result["success"], result["result"]) == (True, {"a": 1})
    assert server.requests[-1][0] == "leave"


async def test_a_report_claims_more_steps(server: FakeServer) -> None:
    for i in range(5):
        server.add("echo", {"i": i}, number=i)
    async with serving(echoing(server, concurrency=2)):
        await server.until(lambda: len(server.results) == 5)
    assert all(b["claim"]["max"] >= 1 for b in server.bodies("results"))
    assert max(len(b["results"]) for b in server.bodies("results")) <= 2


@pytest.mark.parametrize("handled", [unavailable(), page(), page(413), page(404), httpx.ReadTimeout("slow")])
async def test_a_report_is_repeated_until_the_api_answers(server: FakeServer, handled: Any) -> None:
    server.replies["results"] += [handled, handled]
    step = server.add("echo", {"a": 1})
    async with serving(echoing(server)):
        await server.until(lambda: step["step_uuid"] in server.results)
    assert server.count("results") == 3
    assert server.count("register") == 1
    assert "claim" not in server.bodies("results")[1]


async def test_a_failed_report_is_split_until_the_bad_outcome_is_alone(server: FakeServer) -> None:
    def refuse_poison(body: dict[str, Any]) -> httpx.Response | None:
        server.replies["results"].append(refuse_poison)
        bad = any(r.get("result") == {"i": 3} for r in body["results"])
        return error(400, "INVALID", "unreadable") if bad else None

    server.replies["results"].append(refuse_poison)
    gate = asyncio.Event()
    worker = worker_for(server, concurrency=8)

    @worker.step("wait")
    async def wait(ctx: Context) -> Any:
        await gate.wait()
        return ctx.context

    for i in range(8):
        server.add("wait", {"i": i}, number=i)
    async with serving(worker):
        await server.until(lambda: not server.ready)
        gate.set()
        await server.until(lambda: len(server.results) == 7)
        alone = [b for b in server.bodies("results") if [r["result"] for r in b["results"]] == [{"i": 3}]]
        assert alone
        server.replies["results"].clear()
        await server.until(lambda: len(server.results) == 8)


async def test_an_outcome_that_is_too_large_alone_becomes_a_failure(server: FakeServer) -> None:
    server.replies["results"] += [error(413, "TOO_LARGE", "too large")] * 2
    step = server.add("echo", {"a": 1})
    async with serving(echoing(server)):
        await server.until(lambda: step["step_uuid"] in server.results)
    result = server.results[step["step_uuid"]]
    assert result["success"] is False
    assert result["error"]["retryable"] is False
    assert result["error"]["message"] == "result: has 7 bytes, which the server refuses: too large"


def rejecting(code: str, message: str) -> Any:
    def reject(body: dict[str, Any]) -> httpx.Response:
        rejected = [{"step_uuid": r["step_uuid"], "code": code, "message": message} for r in body["results"]]
        return httpx.Response(200, json={"accepted": [], "rejected": rejected, "steps": []})

    return reject


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("STALE_LEASE", "lease lost"),
        ("NOT_FOUND", "no such step"),
        ("INVALID", "result.a: NUL: the attempt was failed"),
    ],
)
async def test_a_settled_rejection_drops_the_outcome(server: FakeServer, code: str, message: str) -> None:
    server.replies["results"].append(rejecting(code, message))
    server.add("echo", number=1)
    worker = echoing(server, concurrency=1)
    async with serving(worker):
        await server.until(lambda: server.count("results") == 1)
        server.add("echo", number=2)  # the slot is free again
        await server.until(lambda: "step-2" in server.results)
    assert "step-1" not in server.results


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL"])
async def test_an_unconfirmed_outcome_is_sent_again(server: FakeServer, code: str) -> None:
    server.replies["results"].append(rejecting(code, "the database does not answer"))
    step = server.add("echo", {"a": 1})
    async with serving(echoing(server)):
        await server.until(lambda: step["step_uuid"] in server.results)
    assert server.results[step["step_uuid"]]["result"] == {"a": 1}


async def test_an_outcome_in_neither_list_is_sent_again(server: FakeServer) -> None:
    server.replies["results"].append(httpx.Response(200, json={"accepted": [], "rejected": [], "steps": []}))
    step = server.add("echo")
    async with serving(echoing(server)):
        await server.until(lambda: step["step_uuid"] in server.results)


async def test_a_malformed_outcome_is_reduced_and_then_failed(server: FakeServer) -> None:
    worker = worker_for(server)

    @worker.step("noted")
    async def noted(ctx: Context) -> int:
        ctx.metadata["a"] = 1
        return 5

    server.replies["results"] += [rejecting("INVALID", "results[0].result: bad")] * 2
    step = server.add("noted")
    async with serving(worker):
        await server.until(lambda: step["step_uuid"] in server.results)
    first, second, third = (b["results"][0] for b in server.bodies("results"))
    assert first["metadata"] == {"a": 1}
    assert ("metadata" in second, second["result"]) == (False, 5)
    assert (third["success"], third["error"]["type"], third["error"]["retryable"]) == (False, "invalid_result", False)


async def test_a_malformed_failure_is_reduced_and_kept(server: FakeServer) -> None:
    worker = worker_for(server)

    @worker.step("fails")
    async def fails() -> None:
        raise ZeroDivisionError("no")

    server.replies["results"] += [rejecting("INVALID", "error.new: unknown key")] * 2
    step = server.add("fails")
    async with serving(worker):
        await server.until(lambda: step["step_uuid"] in server.results)
    assert server.results[step["step_uuid"]]["error"] == {"message": "no", "type": "ZeroDivisionError"}


@pytest.mark.parametrize(
    ("answer", "again"),
    [
        (error(404, "NOT_FOUND", "worker worker-1 is not registered: register again"), True),
        (error(404, "NOT_FOUND", "no such path: /v1/workers/worker-1/claims"), False),
        (page(404), False),
        (error(404, "NOT_FOUND", "no such thing"), False),
    ],
)
async def test_only_the_api_can_forget_a_worker(server: FakeServer, answer: httpx.Response, again: bool) -> None:
    server.replies["claims"].append(answer)
    async with serving(echoing(server)):
        await server.until(lambda: server.count("claims") >= 2)
        server.add("echo", number=1)
        await server.until(lambda: "step-1" in server.results)
    assert server.count("register") == (2 if again else 1)


@pytest.mark.parametrize("answer", [page(), httpx.Response(200, json={"steps": [{"step_uuid": "x"}]}), unavailable()])
async def test_a_claim_with_a_foreign_answer_is_repeated(server: FakeServer, answer: httpx.Response) -> None:
    server.replies["claims"].append(answer)
    step = server.add("echo")
    async with serving(echoing(server)):
        await server.until(lambda: step["step_uuid"] in server.results)


async def test_a_claim_that_is_too_large_is_halved(server: FakeServer) -> None:
    server.replies["claims"].append(error(413, "TOO_LARGE", "too large"))
    async with serving(echoing(server, concurrency=8)):
        await server.until(lambda: server.count("claims") >= 2)
    assert [b["max"] for b in server.bodies("claims")][:2] == [8, 4]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(401, "UNAUTHORIZED", "the key is unknown: create one"), Unauthorized),
        (error(400, "INVALID", "namespaces[0]: wildcards are not supported"), Invalid),
        (error(400, "NOT_SUPPORTED", "protocol 1 is not supported: update the worker"), NotSupported),
    ],
)
async def test_a_refused_worker_ends_at_the_start(server: FakeServer, answer: httpx.Response, kind: Any) -> None:
    server.replies["register"].append(answer)
    with pytest.raises(kind, match=r"the server at http://127.0.0.1:8080 refuses worker test: "):
        await echoing(server).serve()


def test_run_ends_the_program_with_one_sentence(server: FakeServer) -> None:
    server.replies["register"].append(error(401, "UNAUTHORIZED", "the key is unknown: create one"))
    with pytest.raises(SystemExit) as ended:
        echoing(server).run()
    text = "tasker: the server at http://127.0.0.1:8080 refuses worker test: the key is unknown: create one"
    assert ended.value.code == text


async def test_an_unreachable_server_is_tried_again_at_the_start(server: FakeServer) -> None:
    server.replies["register"] += [httpx.ConnectError("refused"), page(502)]
    step = server.add("echo")
    async with serving(echoing(server)):
        await server.until(lambda: step["step_uuid"] in server.results)
    assert server.count("register") == 3


async def test_stop_ends_a_worker_that_cannot_register(server: FakeServer) -> None:
    server.replies["register"] += [httpx.ConnectError("refused")] * 10_000
    async with serving(echoing(server)):
        await server.until(lambda: server.count("register") >= 2)
    assert server.count("leave") == 0


async def test_a_key_that_is_refused_later_is_tried_again(server: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    server.replies["claims"] += [error(401, "UNAUTHORIZED", "the key is expired")] * 3
    step = server.add("echo")
    with caplog.at_level(logging.INFO, "tasker.worker"):
        async with serving(echoing(server)):
            await server.until(lambda: step["step_uuid"] in server.results)
    assert sum("refused the API key" in m for m in caplog.messages) == 1
    assert sum("accepts the API key again" in m for m in caplog.messages) == 1


async def test_the_key_file_is_read_again_when_it_changes(server: FakeServer, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("first\n")
    async with serving(echoing(server, key_file=file)):
        await server.until(lambda: server.count("claims") >= 1)
        file.write_text("second-key\n")
        step = server.add("echo")
        await server.until(lambda: step["step_uuid"] in server.results)
    assert server.keys[0] == "Bearer first"
    assert server.keys[-1] == "Bearer second-key"


async def test_a_missing_key_file_ends_the_worker(server: FakeServer, tmp_path: Path) -> None:
    with pytest.raises(Unauthorized, match="cannot read the API key file"):
        await echoing(server, key_file=tmp_path / "none").serve()


async def test_a_lost_lease_cancels_the_handler(caplog: pytest.LogCaptureFixture) -> None:
    server = FakeServer(interval_ms=10)
    worker = worker_for(server, concurrency=1)
    ended = asyncio.Event()

    @worker.step("hang")
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    step = server.add("hang", number=1)
    worker.add("echo", echo)
    async with serving(worker):
        await server.until(lambda: any(b["leases"] for b in server.bodies("heartbeat")))
        server.lost.add(step["step_uuid"])
        await asyncio.wait_for(ended.wait(), 10)
        server.add("echo", number=2)
        await server.until(lambda: "step-2" in server.results)
    assert "step-1" not in server.results
    assert "lease lost" in caplog.text


async def test_a_lost_lease_sets_cancelled_in_a_thread() -> None:
    server = FakeServer(interval_ms=10)
    worker = worker_for(server)
    stopped = threading.Event()

    @worker.step("loop")
    def loop(ctx: SyncContext) -> None:
        server.lost.add(ctx.step_uuid)
        server.await_in_thread(lambda: ctx.cancelled)
        stopped.set()

    server.add("loop", number=1)
    async with serving(worker):
        await server.until(stopped.is_set)
    assert server.results == {}


async def test_heartbeats_continue_while_a_handler_blocks_the_event_loop() -> None:
    server = FakeServer(interval_ms=10)
    worker = worker_for(server)

    @worker.step("block")
    async def block(ctx: Context) -> bool:
        before = server.count("heartbeat")
        return server.await_in_thread(lambda: server.count("heartbeat") >= before + 3)

    server.add("block", number=1)
    async with serving(worker):
        await server.until(lambda: "step-1" in server.results)
    assert server.results["step-1"]["result"] is True


async def test_a_lease_that_cannot_be_extended_ends_by_the_own_clock() -> None:
    server = FakeServer(interval_ms=10, lease_ms=60)
    server.replies["heartbeat"] += [httpx.ConnectError("refused")] * 10_000
    worker = worker_for(server)
    ended = asyncio.Event()

    @worker.step("hang")
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    server.add("hang", number=1)
    async with serving(worker):
        await asyncio.wait_for(ended.wait(), 10)
        server.replies["heartbeat"].clear()
    assert server.results == {}


async def test_a_heartbeat_that_is_refused_is_split() -> None:
    server = FakeServer(interval_ms=10)

    def refuse(body: dict[str, Any]) -> httpx.Response | None:
        server.replies["heartbeat"].append(refuse)
        bad = any(lease["step_uuid"] == "step-1" for lease in body["leases"])
        return error(400, "INVALID", "leases[0]: unreadable") if bad else None

    server.replies["heartbeat"].append(refuse)
    worker = worker_for(server)

    @worker.step("hang")
    async def hang() -> None:
        await asyncio.Event().wait()

    for i in (1, 2, 3):
        server.add("hang", number=i)
    async with serving(worker):
        good = [{"step_uuid": f"step-{i}", "lease_token": f"token-step-{i}"} for i in (2, 3)]
        await server.until(lambda: any(b["leases"] and b["leases"][-1] in good for b in server.bodies("heartbeat")))
        for i in (1, 2, 3):
            server.lost.add(f"step-{i}")
        server.replies["heartbeat"].clear()


async def test_a_malformed_answer_does_not_end_the_heartbeats(caplog: pytest.LogCaptureFixture) -> None:
    server = FakeServer(interval_ms=10)
    strange = httpx.Response(200, json={"extended": [1], "lost": [], "drain": False})
    server.replies["heartbeat"] += [strange, httpx.Response(200, json={"extended": []}), page()]
    async with serving(echoing(server)):
        await server.until(lambda: server.count("heartbeat") >= 5)
    assert "cannot use the answer to a heartbeat" in caplog.text


async def test_a_report_waits_for_retry_after(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []
    sleep = asyncio.sleep

    async def note(delay: float) -> None:
        delays.append(delay)
        await sleep(0)

    monkeypatch.setattr(tasker._report.asyncio, "sleep", note)
    server.replies["results"].append(error(503, "UNAVAILABLE", "overloaded", **{"Retry-After": "1"}))
    server.add("echo")
    worker = echoing(server)
    task = asyncio.ensure_future(worker.serve())
    await server.until(lambda: 1.0 in delays)
    (attempt,) = worker._run.attempts.values() if worker._run else ()
    assert attempt.due > asyncio.get_running_loop().time() + 0.5
    attempt.due = 0.0
    worker.stop()
    await task


async def test_a_worker_runs_once_at_a_time(server: FakeServer) -> None:
    worker = echoing(server)
    async with serving(worker):
        await worker.wait_registered()
        with pytest.raises(RuntimeError, match="already running"):
            await worker.serve()


async def test_the_timeout_of_a_step_cancels_its_handler(server: FakeServer) -> None:
    worker = worker_for(server)

    @worker.step("hang")
    async def hang() -> None:
        await asyncio.Event().wait()

    server.lease_ms = 20
    step = server.add("hang", deadline="2026-11-21T01:56:15.387764Z")
    async with serving(worker):
        await server.until(lambda: step["step_uuid"] in server.results)
    assert server.results[step["step_uuid"]]["error"]["type"] == "step_timeout"


@pytest.mark.parametrize("late", [False, True])
async def test_a_step_that_arrives_again_ends_the_older_attempt(server: FakeServer, late: bool) -> None:
    worker = worker_for(server)
    begun: list[int] = []
    ended: list[int] = []

    @worker.step("hang")
    async def hang(ctx: Context) -> int:
        begun.append(ctx.attempt)
        try:
            await release.wait()
        except asyncio.CancelledError:
            ended.append(ctx.attempt)
            raise
        return ctx.attempt

    release = asyncio.Event()
    older = server.step("hang", step_uuid="s", attempt=1, lease_token="t1")
    newer = server.step(
        "hang", step_uuid="s", attempt=2, lease_token="t2", lease_expires_at="2026-11-21T01:57:15.377764Z"
    )
    first, second = (newer, older) if late else (older, newer)
    server.ready.append(first)
    async with serving(worker):
        await server.until(lambda: begun == [first["attempt"]])
        with server.changed:
            server.ready.append(second)
            server.changed.notify_all()
        if late:
            await server.until(lambda: server.released == ["s"])
        else:
            await server.until(lambda: ended == [1])
        release.set()
        await server.until(lambda: "s" in server.results)
    assert server.results["s"]["lease_token"] == "t2"
    assert server.results["s"]["result"] == 2


async def test_a_large_result_and_a_whole_context_are_fetched(server: FakeServer) -> None:
    worker = worker_for(server)

    @worker.step("use")
    async def use(ctx: Context) -> Any:
        return [await ctx.result(Any, "load"), await ctx.result(Any, "load"), await ctx.task_context()]

    result = server.document("/v1/tasks/task-1/results/load", {"rows": 3})
    whole = server.document("/v1/tasks/task-1/context", {"refunds": [1]})
    server.replies["document"] += [unavailable(), page(200), httpx.Response(200, json={"rows": 9})]
    step = server.add(
        "use",
        dependency_result_refs={"load": {"step_uuid": "load", "bytes": 9, "href": result}},
        context_omitted=["/refunds"],
        context_href=whole,
    )
    async with serving(worker):
        await server.until(lambda: step["step_uuid"] in server.results)
    assert server.results[step["step_uuid"]]["result"] == [{"rows": 3}, {"rows": 3}, {"refunds": [1]}]
    assert server.count("document") == 6


@pytest.mark.parametrize(
    ("answers", "kind", "retryable"),
    [
        ([error(404, "NOT_FOUND", "task task-1 has no such result")], "invalid_input", False),
        ([error(413, "TOO_LARGE", "too large")], "invalid_input", False),
        ([page(404)] * 5, "input_unavailable", True),
    ],
)
async def test_a_result_that_cannot_be_fetched(server: FakeServer, answers: Any, kind: str, retryable: bool) -> None:
    worker = worker_for(server)

    @worker.step("use")
    async def use(ctx: Context) -> Any:
        return await ctx.result(Any, "load")

    server.replies["document"] += answers
    reference = {"step_uuid": "load", "bytes": 9, "href": "/v1/tasks/task-1/results/load"}
    step = server.add("use", dependency_result_refs={"load": reference})
    async with serving(worker):
        await server.until(lambda: step["step_uuid"] in server.results)
    failure = server.results[step["step_uuid"]]["error"]
    assert (failure["type"], failure["retryable"]) == (kind, retryable)
    assert "cannot fetch the result of step load (9 bytes)" in failure["message"]


@pytest.mark.parametrize(
    ("answers", "want"),
    [
        ([unavailable(), page(200)], None),
        ([error(409, "STALE_LEASE", "lost")], "StaleLease"),
        ([error(400, "INVALID", "a NUL")], "invalid_checkpoint"),
    ],
)
async def test_a_checkpoint_is_saved_by_the_server(server: FakeServer, answers: Any, want: str | None) -> None:
    worker = worker_for(server)

    @worker.step("save")
    async def save(ctx: Context) -> None:
        await ctx.checkpoint({"row": 1})

    server.replies["checkpoint"] += answers
    step = server.add("save")
    async with serving(worker):
        await server.until(lambda: step["step_uuid"] in server.results)
    result = server.results[step["step_uuid"]]
    assert result.get("error", {}).get("type") == want
    assert server.checkpoints == ([] if want else [{"row": 1}])


async def test_a_drain_lets_handlers_finish(server: FakeServer) -> None:
    worker = worker_for(server)
    gate, begun = asyncio.Event(), asyncio.Event()

    @worker.step("wait")
    async def wait() -> str:
        begun.set()
        await gate.wait()
        return "done"

    step = server.add("wait")
    async with serving(worker):
        await asyncio.wait_for(begun.wait(), 10)
        worker.stop()
        await server.until(lambda: server.count("drain") == 1)
        gate.set()
    assert server.results[step["step_uuid"]]["result"] == "done"
    assert server.released == []
    assert server.left.is_set()


async def test_a_drain_releases_steps_after_its_time_limit(server: FakeServer) -> None:
    worker = worker_for(server, drain_timeout=0.01)
    begun = asyncio.Event()

    @worker.step("hang")
    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    step = server.add("hang")
    async with serving(worker):
        await asyncio.wait_for(begun.wait(), 10)
    assert server.released == [step["step_uuid"]]
    assert server.results == {}


async def test_a_handler_that_ignores_its_cancellation_is_abandoned(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasker.worker, "STOP_GRACE", 0.01)
    worker = worker_for(server, drain_timeout=0.01)
    begun, gate = threading.Event(), threading.Event()

    @worker.step("stuck")
    def stuck() -> None:
        begun.set()
        gate.wait(30)

    step = server.add("stuck")
    with pytest.raises(HandlersStuck, match="1 handlers did not stop"):
        async with serving(worker):
            await server.until(lambda: begun.is_set() or bool(server.results))
    gate.set()
    assert server.released == [step["step_uuid"]]


async def test_an_operator_drains_the_worker() -> None:
    server = FakeServer(interval_ms=10)
    server.drain = True
    await asyncio.wait_for(echoing(server).serve(), 10)
    assert server.left.is_set()


async def test_cancelling_serve_drains(server: FakeServer) -> None:
    step = server.add("echo")
    task = asyncio.ensure_future(echoing(server).serve())
    await server.until(lambda: step["step_uuid"] in server.results)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.left.is_set()


async def test_the_last_report_is_sent_again_during_a_drain(server: FakeServer) -> None:
    server.replies["results"] += [unavailable()] * 4
    step = server.add("echo")
    async with serving(echoing(server)):
        await server.until(lambda: server.count("results") >= 1)
    assert step["step_uuid"] in server.results


async def test_an_unanswered_outcome_with_a_lost_lease_is_dropped_at_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasker._report, "LOST_TIMEOUT", 0.0)
    monkeypatch.setattr(tasker._report.Backoff, "step", lambda self, limit=0.0: 0.005)
    server = FakeServer(interval_ms=10)
    server.replies["results"] += [unavailable()] * 10_000
    server.lost.add("step-1")
    server.add("echo", number=1)
    worker = echoing(server, concurrency=1)
    async with serving(worker):
        await server.until(lambda: "dropped an outcome" in caplog.text)
        server.replies["results"].clear()


async def test_an_unknown_handler_fails_the_step(server: FakeServer) -> None:
    step = server.add("other")
    async with serving(echoing(server)):
        await server.until(lambda: step["step_uuid"] in server.results)
    failure = server.results[step["step_uuid"]]["error"]
    assert failure["type"] == "unknown_handler"
    assert failure["message"] == "this worker has no handler 'other'"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"namespaces": []}, "namespaces is empty"),
        ({"namespaces": "a", "concurrency": 0}, "invalid concurrency 0"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Worker(**options)


async def test_a_worker_without_handlers_does_not_start(server: FakeServer) -> None:
    with pytest.raises(ValueError, match="no handlers"):
        await worker_for(server).serve()
