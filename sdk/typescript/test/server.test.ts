// Tests against a real server.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from "vitest";
import {
    Client,
    RetryAfter,
    silentLogger,
    TaskCancelled,
    TaskerError,
    TaskFailed,
    TaskUnderInvestigation,
    WaitTimeout,
    Worker,
    type StepContext,
    type TaskHandle,
} from "@tasker/sdk";
import { DevServer } from "@tasker/sdk/testing";

const url = inject("url");
const client = new Client({ url });
const workers: Worker[] = [];
let unique = 0;

/** namespace registers a template and returns its namespace, which no other test uses. */
async function namespace(steps: object[]): Promise<string> {
    const name = `ts-${process.pid}-${Date.now()}-${unique++}`;
    await client.templates.put({ namespace_name: name, name: "flow", version: "1.0.0", steps });
    return name;
}

async function work(
    namespace: string,
    handlers: Record<string, (input: any, ctx: StepContext) => unknown>,
): Promise<Worker> {
    const worker = new Worker({ namespaces: [namespace], url, logger: silentLogger, drainTimeoutMs: 500 });
    workers.push(worker);
    for (const [name, handler] of Object.entries(handlers)) worker.handle(name, handler);
    await worker.start();
    return worker;
}

function step(name: string, more: object = {}): object {
    return { name, handler: { callable: name }, ...more };
}

/** rejection returns the error of a promise. */
function rejection<E>(promise: Promise<unknown>): Promise<E> {
    return promise.then(
        () => expect.fail("no error"),
        (e: E) => e,
    );
}

afterEach(async () => {
    await Promise.allSettled(workers.splice(0).map((w) => w.stop()));
});
afterAll(() => client.close());

describe("tasks", () => {
    test("result returns the results by step name", async () => {
        const n = await namespace([step("a"), step("b", { dependencies: ["a"] })]);
        await work(n, {
            a: (input: any) => input.n + 1,
            b: async (_, ctx) => ({ got: await ctx.result<number>("a") }),
        });
        const task = await client.create({ namespace: n, name: "flow", context: { n: 1 } });
        expect(await task.result<{ b: { got: number } }>()).toEqual({ a: 2, b: { got: 2 } });
    });

    test("a failed task is repaired: each of the step actions", async () => {
        const n = await namespace([step("a", { retry: { max_attempts: 1 } }), step("b", { dependencies: ["a"] })]);
        let broken = true;
        await work(n, {
            a: () => {
                if (broken) throw new Error("declined");
                return "charged";
            },
            b: async (_, ctx) => ctx.result("a"),
        });
        const [reset, resolved, completed] = await client.createMany(
            Array.from({ length: 3 }, () => ({ namespace: n, name: "flow" })),
        );
        for (const task of [reset!, resolved!, completed!]) {
            const error = await rejection<TaskUnderInvestigation>(task.result());
            expect(error).toBeInstanceOf(TaskUnderInvestigation);
            expect(error.message).toContain(`task ${task.uuid} (${n}/flow) waits for an operator: `);
            expect(error.message).toContain(`investigation ${error.investigationUuid}; step a: declined`);
        }
        broken = false;
        const change = { reason: "repaired", by: "ann" };
        await reset!.resetStep("a", change);
        await resolved!.resolveStep("a", change);
        await completed!.completeStep("a", { ...change, result: "by hand" });
        expect(await Promise.all([reset!, resolved!, completed!].map((t) => t.result()))).toEqual([
            { a: "charged", b: "charged" },
            { b: null },
            { a: "by hand", b: "by hand" },
        ]);
    });

    test("an investigation can be listed, read and resolved as permanently failed", async () => {
        const n = await namespace([step("a", { retry: { max_attempts: 1 } })]);
        await work(n, { a: () => Promise.reject(new Error("declined")) });
        const task = await client.create({ namespace: n, name: "flow" });
        const { dlq_entry_uuid: uuid } = await task.wait();
        const listed: string[] = [];
        for await (const page of client.investigations.list({ resolution_status: "pending", limit: 1 })) {
            expect(page).toHaveLength(1);
            listed.push(page[0]!.dlq_entry_uuid);
            if (listed.includes(uuid!)) break;
        }
        expect(listed).toContain(uuid);
        expect((await client.investigations.get(uuid!)).task_uuid).toBe(task.uuid);
        const ended = await client.investigations.resolve(uuid!, {
            notes: "lost",
            by: "ann",
            status: "permanently_failed",
        });
        expect(ended.resolution_status).toBe("permanently_failed");
        expect(await rejection(task.result())).toBeInstanceOf(TaskFailed);
    });

    test("a cancelled task", async () => {
        const n = await namespace([step("a")]);
        const task = await client.create({ namespace: n, name: "flow" });
        const waiting = rejection<TaskCancelled>(task.result());
        expect((await task.cancel({ reason: "changed my mind", by: "ann" })).status).toBe("cancelled");
        expect(await waiting).toBeInstanceOf(TaskCancelled);
    });

    test("a wait has a limit and can be aborted", async () => {
        const n = await namespace([step("a")]);
        const task = await client.create({ namespace: n, name: "flow" });
        const error = await rejection<WaitTimeout>(task.result({ timeoutMs: 50 }));
        expect(error).toBeInstanceOf(WaitTimeout);
        expect(error.message).toContain("has not ended within 50 ms: it is steps_in_process");
        const abort = new AbortController();
        const waiting = rejection<Error>(task.result({ signal: abort.signal }));
        abort.abort();
        expect((await waiting).name).toBe("AbortError");
    });

    test("external steps", async () => {
        const n = await namespace([
            { name: "pay", type: "external" },
            { name: "ship", type: "external" },
        ]);
        const task = await client.create({ namespace: n, name: "flow" });
        expect((await task.completeExternal("pay", { result: { id: 7 }, source: "bank" })).current_state).toBe(
            "complete",
        );
        expect(
            (await task.failExternal("ship", "no stock", { type: "stock", retryable: false, source: "store" }))
                .current_state,
        ).toBe("error");
        expect((await rejection<Error>(task.result())).message).toContain("step ship: no stock");
    });

    test("lists are pages", async () => {
        const n = await namespace([step("a")]);
        const created = await client.createMany(
            Array.from({ length: 5 }, (_, i) => ({ namespace: n, name: "flow", tags: [`t${i % 2}`] })),
        );
        const pages: string[][] = [];
        for await (const page of client.list({ namespace: n, limit: 2 })) pages.push(page.map((t) => t.task_uuid));
        expect(pages.map((p) => p.length)).toEqual([2, 2, 1]);
        expect(new Set(pages.flat())).toEqual(new Set(created.map((t) => t.uuid)));
        const tagged: unknown[] = [];
        for await (const page of client.list({ namespace: n, tag: ["t1"] })) tagged.push(...page);
        expect(tagged).toHaveLength(2);
    });

    test("templates can be put in YAML, read and listed", async () => {
        const name = `ts-${process.pid}-${Date.now()}-yaml`;
        const put = await client.templates.put(
            `{namespace_name: ${name}, name: flow, version: 1.0.0, steps: [{name: a, handler: {callable: a}}]}`,
        );
        expect(put.step_count).toBe(1);
        expect((await client.templates.get(name, "flow", "1.0.0")).checksum).toBe(put.checksum);
        for await (const page of client.templates.list({ namespace: name }))
            expect(page.map((t) => t.version)).toEqual(["1.0.0"]);
    });

    test("a refused request is a TaskerError with the details of the server", async () => {
        const error = await rejection<TaskerError>(client.create({ namespace: "", name: "flow" }));
        expect(error).toMatchObject({ name: "TaskerError", code: "INVALID", status: 400 });
        expect(error.details).toEqual([expect.objectContaining({ path: "namespace" })]);
        expect((await rejection<TaskerError>(client.task("x").get())).code).toBe("INVALID");
    });
});

describe("the conformance program", () => {
    const program = join(import.meta.dirname, "../conformance/worker.js");

    function start(environment: object): { exit: Promise<number | null>; text: () => string; kill: () => void } {
        const child = spawn(process.execPath, [program], {
            env: { ...process.env, TASKER_URL: url, ...environment },
            stdio: ["ignore", "ignore", "pipe"],
        });
        let text = "";
        child.stderr.on("data", (chunk) => (text += String(chunk)));
        return {
            exit: once(child, "close").then(([code]) => code as number | null),
            text: () => text,
            kill: () => void child.kill("SIGTERM"),
        };
    }

    test("runs its handlers and exits with 0 after SIGTERM", async () => {
        const n = await namespace([
            step("echo"),
            step("item"),
            step("checkpoint", { retry: { backoff_base_ms: 1 } }),
            step("unicode"),
        ]);
        const program = start({ CONFORMANCE_NAMESPACE: n });
        const task = await client.create({ namespace: n, name: "flow", context: { text: "🦊ä" } });
        expect(await task.result()).toMatchObject({
            echo: { context: { text: "🦊ä" }, attempt: 1, task_uuid: task.uuid, results: {} },
            item: { item: null, index: null },
            checkpoint: { row: 3 },
            unicode: { text: "🦊ä", length: 2 },
        });
        program.kill();
        expect(await program.exit).toBe(0);
    });

    test("prints one line and exits with 1 if it cannot start", async () => {
        const program = start({ CONFORMANCE_NAMESPACE: "*" });
        expect(await program.exit).toBe(1);
        expect(program.text()).toMatch(/^register worker conformance: .*\n$/);
    });
});

describe("DevServer", () => {
    let server: DevServer;
    beforeAll(async () => {
        server = await DevServer.start({ binary: inject("binary") });
    });
    afterAll(() => server.stop());

    test("scripted outcomes and the test clock", async () => {
        await server.client.templates.put({
            namespace_name: "s",
            name: "flow",
            version: "1.0.0",
            steps: [step("a"), step("b")],
        });
        await server.script("s", {
            a: [new RetryAfter(7_200_000, "closed"), { n: 1 }],
            b: [(input: { x: number }) => input.x + 1],
        });
        const task: TaskHandle = await server.client.create({ namespace: "s", name: "flow", context: { x: 1 } });
        await server.until(task, (t) => t.status === "waiting_for_retry");
        const before = Date.now();
        expect((await server.advance(7_200_000)).getTime()).toBeGreaterThan(before + 7_000_000);
        expect(await task.result()).toEqual({ a: { n: 1 }, b: 2 });
    });

    test("a server that does not start is an error with its output", async () => {
        await expect(DevServer.start({ binary: inject("binary"), args: ["--nonsense"] })).rejects.toThrow(
            "unknown flag: --nonsense",
        );
        await expect(DevServer.start({ binary: "/nonexistent" })).rejects.toThrow(
            "set TASKER_BINARY or the option binary",
        );
    });
});
