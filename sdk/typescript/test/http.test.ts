import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Client, TaskerError, Worker, type StepContext } from "@tasker/sdk";
import { parseRetryAfter } from "../dist/http.js";
import { FakeServer, RecordingLogger, refused, type Answer } from "./fake.js";

let fake: FakeServer;
let directory: string;

beforeEach(async () => {
    fake = await FakeServer.start();
    directory = mkdtempSync(join(tmpdir(), "tasker-test-"));
});

afterEach(() => {
    fake.stop();
    rmSync(directory, { recursive: true });
});

/** failure returns the error of a request that the fake server answers with answer. */
async function failure(answer: Answer, options: object = {}): Promise<TaskerError> {
    fake.rule(() => answer);
    const client = new Client({ url: fake.url, retries: 0, ...options });
    return client.get("u").then(
        () => expect.fail("no error"),
        (e: TaskerError) => e,
    );
}

describe("errors", () => {
    test("an error of the API has its code, message, details and delay", async () => {
        const error = await failure({
            status: 409,
            body: { error: { code: "CONFLICT", message: "no", details: { a: 1 } } },
            headers: { "retry-after": "2" },
        });
        expect(error).toBeInstanceOf(TaskerError);
        expect(error).toMatchObject({
            code: "CONFLICT",
            message: "no",
            status: 409,
            details: { a: 1 },
            retryAfterMs: 2000,
        });
    });

    test("a page of a proxy is quoted without the key", async () => {
        const error = await failure(
            { status: 502, body: "<h1>Bad   gateway</h1> for Bearer s3cret" },
            { key: "s3cret" },
        );
        expect(error).toMatchObject({ code: "UNAVAILABLE", status: 502 });
        expect(error.message).toBe(
            `${fake.url} responded with 502: <h1>Bad gateway</h1> for Bearer [hidden]; is it a Tasker server?`,
        );
    });

    test("a redirect is not followed", async () => {
        const error = await failure({ status: 301, body: "", headers: { location: "https://tasker.example/" } });
        expect(error.message).toContain("responded with 301, which points to https://tasker.example/");
    });

    test.each([
        ["a page", "<html>"],
        ["another document", { ok: true }],
        ["null", null],
        ["an array", []],
    ])("status 200 with %s is refused", async (_, body) => {
        expect(await failure({ status: 200, body })).toMatchObject({ code: "UNAVAILABLE", status: 200 });
    });

    test("an unreachable server", async () => {
        fake.stop();
        const error = await failure({ status: 200 });
        expect(error).toMatchObject({ code: "UNAVAILABLE", unsent: true });
        expect(error.message).toContain("is the server running? start one with: tasker dev");
    });

    test("a timeout", async () => {
        expect((await failure({ status: 0, hang: true }, { timeoutMs: 30 })).message).toContain(
            "within 30 ms: the request may still take effect",
        );
    });

    test.each([
        [undefined, 0],
        ["3", 3000],
        ["99999", 3_600_000],
        ["soon", 0],
        ["-1", 0],
        [new Date(Date.now() - 9000).toUTCString(), 0],
    ])("Retry-After %s is %d ms", (header, ms) => {
        expect(parseRetryAfter(header)).toBe(ms);
    });
});

describe("retries", () => {
    async function requests(send: (client: Client) => Promise<unknown>, answer: Answer): Promise<number> {
        fake.rule(() => answer);
        await send(new Client({ url: fake.url, retries: 2 })).catch(() => undefined);
        return fake.requests.length;
    }
    const busy = refused(503, "UNAVAILABLE", "busy");
    const create = { namespace: "n", name: "t" };

    test("a read is repeated", async () => {
        expect(await requests((c) => c.get("u"), busy)).toBe(3);
    });
    test("a creation is not repeated", async () => {
        expect(await requests((c) => c.create(create), busy)).toBe(1);
    });
    test("a creation with an idempotency key is repeated", async () => {
        expect(await requests((c) => c.create({ ...create, idempotency_key: "k" }), busy)).toBe(3);
    });
    test("a step action is repeated under one key", async () => {
        expect(await requests((c) => c.task("u").resetStep("s", { reason: "r", by: "b" }), busy)).toBe(3);
        expect(new Set(fake.requests.map((r) => r.headers["idempotency-key"])).size).toBe(1);
    });
    test("a refusal is not repeated", async () => {
        expect(await requests((c) => c.get("u"), refused(404, "NOT_FOUND", "no task u"))).toBe(1);
    });
});

describe("key", () => {
    const used = () => fake.requests.map((r) => r.headers.authorization);
    const lenient = () => fake.rule(() => ({ status: 200, body: { task_uuid: "u", status: "complete" } }));

    test("the file is read again when it changes, and the previous key is used while it is being replaced", async () => {
        const keyFile = join(directory, "key");
        writeFileSync(keyFile, "one\n");
        lenient();
        const client = new Client({ url: fake.url, keyFile });
        await client.get("u");
        writeFileSync(keyFile, "second\n");
        await client.get("u");
        writeFileSync(keyFile, "");
        await client.get("u");
        rmSync(keyFile);
        await client.get("u");
        expect(used()).toEqual(["Bearer one", "Bearer second", "Bearer second", "Bearer second"]);
    });

    test.each([
        ["missing", undefined, "no such file"],
        ["empty", "", "is empty"],
        ["two words", "a b", "must contain exactly one key"],
    ])("a file that is %s", async (_, text, message) => {
        const keyFile = join(directory, "key");
        if (text !== undefined) writeFileSync(keyFile, text);
        const error = await new Client({ url: fake.url, keyFile }).get("u").then(
            () => expect.fail("no error"),
            (e: TaskerError) => e,
        );
        expect(error.code).toBe("UNAUTHORIZED");
        expect(error.message).toContain(message);
        expect(fake.requests).toHaveLength(0);
    });

    test.each([
        [{ TASKER_TOKEN: "a" }, "Bearer a"],
        [{}, undefined],
    ])("the environment %j", async (environment, header) => {
        lenient();
        const before = { ...process.env };
        for (const name of ["TASKER_TOKEN", "TASKER_TOKEN_FILE"]) delete process.env[name];
        Object.assign(process.env, environment);
        const client = new Client({ url: fake.url });
        process.env = before;
        await client.get("u");
        expect(used()).toEqual([header]);
    });
});

describe("documents by reference", () => {
    const document = '{"big": "text"}';
    const tag = createHash("sha256").update(document).digest("base64url");

    /** run runs a handler for a step with references against a fake server with rule. */
    async function run(
        rule: (path: string) => Answer | undefined,
        handler: (ctx: StepContext) => unknown,
    ): Promise<any> {
        const worker = new Worker({
            namespaces: ["n"],
            url: fake.url,
            logger: new RecordingLogger(),
            drainTimeoutMs: 100,
        });
        worker.handle("h", (_, ctx) => handler(ctx));
        fake.rule((r) => (r.method === "GET" ? rule(r.path) : undefined));
        await worker.start();
        fake.step("h", {
            task_uuid: "task-1",
            context: { rest: 1 },
            context_omitted: ["/list"],
            context_href: "/v1/tasks/task-1/context",
            dependency_result_refs: { charge: { step_uuid: "s", bytes: 15, href: "/v1/tasks/task-1/results/s" } },
        });
        await fake.until(() => fake.results.length === 1);
        await worker.stop();
        return fake.results[0];
    }
    const good: Answer = { status: 200, body: document, headers: { etag: `W/"${tag}-gzip"` } };

    test("a result is fetched once", async () => {
        const outcome = await run(
            () => good,
            async (ctx) => [await ctx.result("charge"), await ctx.result("charge"), ctx.dependencies],
        );
        expect(outcome.result).toEqual([{ big: "text" }, { big: "text" }, ["charge"]]);
        expect(fake.requests.filter((r) => r.method === "GET")).toHaveLength(1);
    });

    test("an omitted context is fetched", async () => {
        const outcome = await run(
            () => good,
            (ctx) => ctx.taskContext(),
        );
        expect(outcome.result).toEqual({ big: "text" });
    });

    test.each([
        ["503", refused(503, "UNAVAILABLE", "busy")],
        ["a page", { status: 200, body: "<html>" }],
        ["a document with another ETag", { status: 200, body: document, headers: { etag: '"x"' } }],
        ["a cut document", { status: 200, body: document.slice(1), headers: { etag: `"${tag}"` } }],
    ])("%s is not believed", async (_, answer) => {
        let first = true;
        const outcome = await run(
            () => {
                const now = first ? answer : good;
                first = false;
                return now;
            },
            (ctx) => ctx.result("charge"),
        );
        expect(outcome.result).toEqual({ big: "text" });
    });

    test("a result that does not exist is a permanent failure", async () => {
        const outcome = await run(
            () => refused(404, "NOT_FOUND", "no result of step s in task task-1"),
            (ctx) => ctx.result("charge"),
        );
        expect(outcome.error).toMatchObject({ type: "invalid_input", retryable: false });
        expect(outcome.error.message).toBe(
            "cannot fetch the result of step charge (15 bytes): no result of step s in task task-1",
        );
    });

    test("a checkpoint is saved only by status 204", async () => {
        let first = true;
        fake.rule((r) => {
            if (r.action !== "checkpoint" || !first) return undefined;
            first = false;
            return { status: 200, body: "<html>" };
        });
        const outcome = await run(
            () => undefined,
            (ctx) => ctx.checkpoint({ row: 1 }),
        );
        expect(outcome.success).toBe(true);
        expect(fake.of("checkpoint").map((r) => r.body.checkpoint)).toEqual([{ row: 1 }, { row: 1 }]);
    });

    test.each([
        ["STALE_LEASE", 409, { type: "TaskerError", retryable: true }],
        ["INVALID", 400, { type: "invalid_checkpoint", retryable: false }],
    ])("a checkpoint that is refused with %s", async (code, status, failure) => {
        fake.rule((r) => (r.action === "checkpoint" ? refused(status, code, "no") : undefined));
        const outcome = await run(
            () => undefined,
            (ctx) => ctx.checkpoint(1),
        );
        expect(outcome.error).toMatchObject(failure);
        expect(fake.of("checkpoint")).toHaveLength(1);
    });
});
