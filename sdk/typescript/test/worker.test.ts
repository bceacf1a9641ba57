import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
    Interrupted,
    LeaseLost,
    Permanent,
    RetryAfter,
    StepTimeout,
    TaskerError,
    Worker,
    type WorkerOptions,
} from "@tasker/sdk";
import { FakeServer, RecordingLogger, refused, type Received } from "./fake.js";

let fake: FakeServer;
let log: RecordingLogger;
let workers: Worker[];

beforeEach(async () => {
    fake = await FakeServer.start();
    log = new RecordingLogger();
    workers = [];
});

afterEach(async () => {
    fake.heal();
    await Promise.allSettled(workers.map((w) => w.stop()));
    fake.stop();
});

function newWorker(options: Partial<WorkerOptions> = {}): Worker {
    const worker = new Worker({
        namespaces: ["n"],
        url: fake.url,
        name: "w",
        logger: log,
        drainTimeoutMs: 200,
        ...options,
    });
    workers.push(worker);
    worker.handle("ok", () => ({ done: true }));
    return worker;
}

/** aborted resolves to the reason of an aborted signal. */
function aborted(signal: AbortSignal): Promise<unknown> {
    return new Promise((resolve) => {
        if (signal.aborted) resolve(signal.reason);
        else signal.addEventListener("abort", () => resolve(signal.reason));
    });
}

describe("registration", () => {
    test("sends the spec and the version of the protocol", async () => {
        await newWorker({ version: "7", concurrency: 3 }).start();
        expect(fake.of("workers")[0]!.body).toEqual({
            name: "w",
            namespaces: ["n"],
            handlers: ["ok"],
            version: "7",
            max_concurrency: 3,
            protocol: 1,
        });
    });

    test.each([
        [401, "UNAUTHORIZED", "the key is unknown: create one with tasker-ctl key create"],
        [403, "FORBIDDEN", "the key needs the role worker in namespace n"],
        [400, "INVALID", "handlers[0]: no wildcards"],
        [400, "NOT_SUPPORTED", "this server speaks protocol 2 and later: update the SDK"],
        [413, "TOO_LARGE", "too many handlers"],
        [404, "NOT_FOUND", "no namespace n"],
    ])("ends at the start after %i %s", async (status, code, message) => {
        fake.rule((r) => (r.action === "workers" ? refused(status, code, message) : undefined));
        const error: TaskerError = await newWorker()
            .start()
            .then(
                () => expect.fail("started"),
                (e: TaskerError) => e,
            );
        expect(error).toBeInstanceOf(TaskerError);
        expect(error.code).toBe(code);
        expect(error.message).toBe(`register worker w: ${message}`);
    });

    test("refuses a server that speaks a later version", async () => {
        fake.rule((r) =>
            r.action === "workers"
                ? { status: 201, body: { worker_uuid: "u", heartbeat_interval_ms: 1, lease_ms: 1, protocol: 2 } }
                : undefined,
        );
        await expect(newWorker().start()).rejects.toThrow(
            "version 2 of the worker protocol, this SDK version 1: update @tasker/sdk",
        );
    });

    test.each([
        ["503", refused(503, "UNAVAILABLE", "starting")],
        ["a closed connection", { status: 0, hangUp: true }],
        ["the page of a proxy with status 404", { status: 404, body: "<html>no such site</html>" }],
        ["the page of a proxy with status 200", { status: 200, body: "<html>sign in</html>" }],
        ["a redirect", { status: 302, body: "", headers: { location: "https://login.example" } }],
    ])("is repeated after %s", async (_, answer) => {
        let failed = false;
        fake.rule((r) => {
            if (r.action !== "workers" || failed) return undefined;
            failed = true;
            return answer;
        });
        await newWorker().start();
        expect(fake.of("workers").length).toBeGreaterThanOrEqual(2);
    });

    test("is repeated when the server does not know the worker", async () => {
        let unknown = true;
        fake.rule((r) => {
            if (r.action !== "claims" || !unknown) return undefined;
            unknown = false;
            return refused(404, "NOT_FOUND", `worker ${fake.worker} is not registered: register again`);
        });
        await newWorker().start();
        fake.step("ok");
        await fake.until(() => fake.results.length === 1);
        expect(fake.of("workers")).toHaveLength(2);
    });

    test("is not repeated after a 404 about a path", async () => {
        let wrong = true;
        fake.rule((r) => {
            if (r.action !== "claims" || !wrong) return undefined;
            wrong = false;
            return refused(404, "NOT_FOUND", `no such path: ${r.path}`);
        });
        await newWorker().start();
        fake.step("ok");
        await fake.until(() => fake.results.length === 1);
        expect(fake.of("workers")).toHaveLength(1);
    });

    test("a later rejection as invalid ends the worker", async () => {
        const worker = newWorker();
        await worker.start();
        fake.rule((r) => (r.action === "workers" ? refused(400, "INVALID", "no such handler") : undefined));
        fake.rule((r) =>
            r.action === "heartbeat" ? refused(404, "NOT_FOUND", `worker ${fake.worker} is not registered`) : undefined,
        );
        await expect(worker.finished).rejects.toThrow("no such handler");
    });
});

describe("options", () => {
    test.each([
        [{ namespaces: [] }, "invalid namespaces"],
        [{ concurrency: 0 }, "invalid concurrency 0"],
        [{ concurrency: 1.5 }, "invalid concurrency 1.5"],
        [{ url: "localhost" }, 'invalid url "localhost"'],
        [{ url: "http://a:b@localhost" }, "must not contain a user"],
        [{ key: "two words" }, "invalid key"],
    ])("%j is refused", (options, message) => {
        expect(() => newWorker(options)).toThrow(message);
    });

    test("a handler needs a name and is registered once", () => {
        expect(() => newWorker().handle("ok", () => 1)).toThrow('handler "ok" is registered twice');
        expect(() => newWorker().handle("", () => 1)).toThrow("requires a name");
    });

    test("a worker needs a handler and starts once", async () => {
        await expect(new Worker({ namespaces: ["n"], url: fake.url }).start()).rejects.toThrow("at least one handler");
        const worker = newWorker();
        await worker.start();
        await expect(worker.start()).rejects.toThrow("started already");
    });
});

describe("outcomes", () => {
    async function outcome(run: (ctx: any) => unknown, more: object = {}): Promise<any> {
        const worker = newWorker();
        worker.handle("h", (_, ctx) => run(ctx));
        await worker.start();
        fake.step("h", more);
        await fake.until(() => fake.results.length === 1);
        return fake.results[0];
    }

    test("a result is reported with its metadata", async () => {
        const o = await outcome((ctx) => {
            ctx.metadata.rows = 2;
            return { text: "äöü" };
        });
        expect(o).toMatchObject({ success: true, result: { text: "äöü" }, metadata: { rows: 2 } });
    });

    test("no result is null", async () => {
        expect(await outcome(() => undefined)).toMatchObject({ success: true, result: null });
    });

    test("an error is retried and has its stack as evidence", async () => {
        const o = await outcome(() => (undefined as any).x);
        expect(o.error).toMatchObject({ type: "TypeError", retryable: true });
        expect(o.error.context.stack).toContain("worker.test.ts");
    });

    test("Permanent and RetryAfter", async () => {
        const o = await outcome(() => {
            throw new Permanent("card declined", { type: "card_declined", context: { card: 1 }, fingerprint: "visa" });
        });
        expect(o.error).toEqual({
            message: "card declined",
            type: "card_declined",
            retryable: false,
            context: { card: 1 },
            fingerprint: "visa",
        });
        fake.step("r");
    });

    test("RetryAfter delays the next attempt", async () => {
        const o = await outcome(() => {
            throw new RetryAfter(1500.4, "busy");
        });
        expect(o.error).toEqual({ message: "busy", type: "RetryAfter", retryable: true, retry_after_ms: 1500 });
    });

    test("a result that is not JSON is a permanent failure with its path", async () => {
        const o = await outcome(() => ({ items: [0, 1, 2, { when: 1n }] }));
        expect(o.error).toMatchObject({
            message: "result.items[3].when: bigint is not JSON",
            type: "invalid_result",
            retryable: false,
        });
    });

    test("an unknown handler is a failure", async () => {
        await newWorker().start();
        fake.step("other");
        await fake.until(() => fake.results.length === 1);
        expect(fake.results[0].error).toMatchObject({
            type: "unknown_handler",
            message: 'this worker has no handler "other"',
        });
    });

    test("the deadline of the step aborts the handler", async () => {
        let reason: unknown;
        const o = await outcome(
            async (ctx) => {
                reason = await aborted(ctx.signal);
                throw reason as Error;
            },
            { deadline: new Date(Date.now() + 60).toISOString() },
        );
        expect(reason).toBeInstanceOf(StepTimeout);
        expect(o.error.type).toBe("step_timeout");
    });
});

describe("reports", () => {
    test("a report claims the next steps", async () => {
        const worker = newWorker({ concurrency: 1 });
        await worker.start();
        const first = fake.step("ok");
        const second = fake.step("ok");
        await fake.until(() => fake.results.length === 2);
        expect(fake.results.map((r) => r.step_uuid)).toEqual([first.step_uuid, second.step_uuid]);
        expect(fake.of("results")[0]!.body.claim).toEqual({ max: 1 });
    });

    test.each([
        ["503", refused(503, "UNAVAILABLE", "busy")],
        ["500", refused(500, "INTERNAL", "oops")],
        ["401", refused(401, "UNAUTHORIZED", "rotating")],
        ["a lost response", { status: 0, hangUp: true }],
        ["a page with status 200", { status: 200, body: "<html>welcome</html>" }],
        ["a page with status 404", { status: 404, body: "<html>not found</html>" }],
        ["JSON of another server", { status: 200, body: { ok: true } }],
        ["a bare 413", { status: 413, body: "<html>too large</html>" }],
    ])("a result is sent again unchanged after %s", async (_, answer) => {
        let failures = 2;
        fake.rule((r) => (r.action === "results" && failures-- > 0 ? answer : undefined));
        await newWorker().start();
        fake.step("ok");
        await fake.until(() => fake.results.length >= 3);
        expect(fake.results.every((r) => r.success === true)).toBe(true);
    });

    test("a report without a response is split into halves, down to the outcome that is the cause", async () => {
        const worker = newWorker({ concurrency: 8 });
        let release!: () => void;
        const together = new Promise<void>((resolve) => (release = resolve));
        let running = 0;
        worker.handle("slow", async () => {
            if (++running === 8) release();
            await together;
        });
        const steps = Array.from({ length: 8 }, () => fake.step("slow"));
        const poison = steps[3]!.step_uuid;
        fake.rule((r) =>
            r.action === "results" && r.body.results.some((x: any) => x.step_uuid === poison)
                ? { status: 0, hangUp: true }
                : undefined,
        );
        await worker.start();
        const accepted = () =>
            new Set(
                fake
                    .of("results")
                    .filter((r) => !r.body.results.some((x: any) => x.step_uuid === poison))
                    .flatMap((r) => r.body.results.map((x: any) => x.step_uuid)),
            );
        const sizes = () =>
            fake
                .of("results")
                .filter((r) => r.body.results.some((x: any) => x.step_uuid === poison))
                .map((r) => r.body.results.length);
        await fake.until(() => accepted().size === 7 && sizes().includes(1));
        expect(sizes()[0]).toBe(8);
        expect(sizes()).toContain(4);
    });

    test.each(["STALE_LEASE", "NOT_FOUND"])("an outcome rejected with %s is dropped", async (code) => {
        fake.rule((r) =>
            r.action === "results" && r.body.results[0].result?.first
                ? {
                      status: 200,
                      body: {
                          accepted: [],
                          rejected: [{ step_uuid: r.body.results[0].step_uuid, code, message: "no" }],
                          steps: [],
                      },
                  }
                : undefined,
        );
        const worker = newWorker({ concurrency: 1 });
        worker.handle("first", () => ({ first: true }));
        await worker.start();
        fake.step("first");
        fake.step("ok"); // its slot is free only when the first is dropped
        await fake.until(() => fake.results.some((r) => r.result?.done));
        expect(fake.results).toHaveLength(2);
    });

    test.each(["UNAVAILABLE", "INTERNAL"])("an outcome rejected with %s is sent again", async (code) => {
        let once = true;
        fake.rule((r) => {
            if (r.action !== "results" || !once) return undefined;
            once = false;
            return {
                status: 200,
                body: {
                    accepted: [],
                    rejected: [{ step_uuid: r.body.results[0].step_uuid, code, message: "later" }],
                    steps: [],
                },
            };
        });
        await newWorker().start();
        fake.step("ok");
        await fake.until(() => fake.results.length === 2);
        expect(fake.results[1]).toEqual(fake.results[0]);
    });

    test("an outcome in neither list is sent again", async () => {
        let once = true;
        fake.rule((r) => {
            if (r.action !== "results" || !once) return undefined;
            once = false;
            return { status: 200, body: { accepted: [], rejected: [], steps: [] } };
        });
        await newWorker().start();
        fake.step("ok");
        await fake.until(() => fake.results.length === 2);
    });

    test("a malformed outcome is sent without optional fields and then as a failure", async () => {
        fake.rule((r) => {
            const [x] = r.action === "results" ? r.body.results : [];
            if (!x || x.success === false) return undefined;
            return {
                status: 200,
                body: {
                    accepted: [],
                    rejected: [{ step_uuid: x.step_uuid, code: "INVALID", message: "result.a: too deep" }],
                    steps: [],
                },
            };
        });
        const worker = newWorker();
        worker.handle("h", (_, ctx) => {
            ctx.metadata.m = 1;
            return { a: 1 };
        });
        await worker.start();
        fake.step("h");
        await fake.until(() => fake.results.length === 3);
        expect(fake.results[0].metadata).toEqual({ m: 1 });
        expect(fake.results[1].metadata).toBeUndefined();
        expect(fake.results[2].error).toMatchObject({
            type: "invalid_result",
            retryable: false,
            message: "the server rejected the result: result.a: too deep",
        });
    });

    test("a rejection that failed the attempt drops the outcome", async () => {
        fake.rule((r) =>
            r.action === "results" && r.body.results[0].result?.done
                ? {
                      status: 200,
                      body: {
                          accepted: [],
                          rejected: [
                              {
                                  step_uuid: r.body.results[0].step_uuid,
                                  code: "INVALID",
                                  message: "result: NUL; the attempt was failed",
                              },
                          ],
                          steps: [],
                      },
                  }
                : undefined,
        );
        const worker = newWorker({ concurrency: 1 });
        worker.handle("next", () => "next");
        await worker.start();
        fake.step("ok");
        fake.step("next");
        await fake.until(() => fake.results.some((r) => r.result === "next"));
        expect(fake.results).toHaveLength(2);
    });

    test("a result that is too large for a report of one outcome becomes a permanent failure", async () => {
        fake.rule((r) =>
            r.action === "results" && r.body.results[0].success
                ? refused(413, "TOO_LARGE", "the limit is 16 MiB")
                : undefined,
        );
        await newWorker().start();
        fake.step("ok");
        await fake.until(() => fake.results.at(-1)?.success === false);
        expect(fake.results.at(-1).error).toMatchObject({ type: "invalid_result", retryable: false });
        expect(fake.results.at(-1).error.message).toContain("the limit is 16 MiB");
    });

    test("no step is claimed while outcomes are unanswered", async () => {
        fake.rule((r) => (r.action === "results" ? refused(503, "UNAVAILABLE", "busy") : undefined));
        await newWorker({ concurrency: 1 }).start();
        fake.step("ok");
        fake.step("ok");
        await fake.until(() => fake.results.length === 3);
        expect(fake.queue).toHaveLength(1);
    });
});

describe("leases", () => {
    test("heartbeats extend the lease of a handler that blocks the thread", async () => {
        const worker = newWorker();
        worker.handle("block", () => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500));
        // The fake server shares this thread: it cannot answer meanwhile, but the heartbeats arrive in its socket.
        fake.leaseMs = 60_000;
        await worker.start();
        const step = fake.step("block");
        await fake.until(
            () =>
                fake.results.length === 1 &&
                fake.of("heartbeat").some((r) => r.body.leases.some((l: any) => l.step_uuid === step.step_uuid)),
        );
        expect(fake.results[0].success).toBe(true);
    });

    test("a lease that the server refuses as invalid does not keep it from the others", async () => {
        const worker = newWorker();
        worker.handle("h", async (_, ctx) => void (await aborted(ctx.signal)));
        await worker.start();
        const [invalid, ...others] = ["h", "h", "h", "h"].map((handler) => fake.step(handler).step_uuid);
        const named = (r: Received): string[] => r.body.leases.map((lease: any) => lease.step_uuid);
        fake.rule((r) =>
            r.action === "heartbeat" && named(r).includes(invalid!)
                ? refused(400, "INVALID", "leases[0].lease_token: must be a UUID")
                : undefined,
        );
        const extended = () =>
            fake
                .of("heartbeat")
                .map(named)
                .filter((leases) => !leases.includes(invalid!));
        await fake.until(() => others.every((step) => extended().flat().includes(step)), "a heartbeat of each lease");
    });

    test("a lost lease aborts the handler and its outcome is not reported", async () => {
        const worker = newWorker();
        let reason: unknown;
        worker.handle("h", async (_, ctx) => {
            fake.lost.add(ctx.stepUuid);
            reason = await aborted(ctx.signal);
        });
        await worker.start();
        fake.step("h");
        fake.step("ok");
        await fake.until(() => reason !== undefined && fake.results.length === 1);
        expect(reason).toBeInstanceOf(LeaseLost);
        expect(log.messages("warn")).toContain("lease lost, step stopped");
        await worker.stop();
        expect(fake.results).toHaveLength(1);
    });

    test("a lease that no heartbeat extends in time is lost", async () => {
        fake.leaseMs = 150;
        fake.rule((r) =>
            r.action === "heartbeat" && r.body.leases.length > 0 ? refused(503, "UNAVAILABLE", "down") : undefined,
        );
        const worker = newWorker();
        const reason = new Promise((resolve) =>
            worker.handle("h", async (_, ctx) => resolve(await aborted(ctx.signal))),
        );
        await worker.start();
        fake.step("h");
        expect(await reason).toBeInstanceOf(LeaseLost);
    });

    test("an unchanged expiry extends nothing", async () => {
        fake.leaseMs = 200;
        const end = new Date(Date.now() + 200).toISOString();
        fake.rule((r) => {
            if (r.action !== "heartbeat" || r.body.leases.length === 0) return undefined;
            if (fake.of("heartbeat").length > 8) return refused(503, "UNAVAILABLE", "down");
            return {
                status: 200,
                body: {
                    extended: r.body.leases.map((l: any) => ({ step_uuid: l.step_uuid, lease_expires_at: end })),
                    lost: [],
                    drain: false,
                },
            };
        });
        const worker = newWorker();
        const reason = new Promise((resolve) =>
            worker.handle("h", async (_, ctx) => resolve(await aborted(ctx.signal))),
        );
        await worker.start();
        fake.step("h", { lease_expires_at: end });
        expect(await reason).toBeInstanceOf(LeaseLost);
    });

    test("a step received again aborts the older attempt", async () => {
        const worker = newWorker();
        const reasons: unknown[] = [];
        worker.handle("h", async (_, ctx) => {
            if (ctx.attempt === 2) return "second";
            reasons.push(await aborted(ctx.signal));
            return "first";
        });
        await worker.start();
        const first = fake.step("h");
        await fake.until(() => fake.queue.length === 0);
        fake.step("h", {
            step_uuid: first.step_uuid,
            attempt: 2,
            lease_expires_at: new Date(Date.now() + 60_000).toISOString(),
        });
        await fake.until(() => fake.results.length === 1 && reasons.length === 1);
        expect(reasons[0]).toBeInstanceOf(LeaseLost);
        expect(fake.results[0].result).toBe("second");
    });

    test("an older assignment that arrives late is released", async () => {
        const worker = newWorker();
        let finish!: () => void;
        worker.handle("h", () => new Promise<void>((resolve) => (finish = resolve)));
        await worker.start();
        const newer = fake.step("h", { attempt: 2 });
        await fake.until(() => fake.queue.length === 0);
        const older = fake.step("h", {
            step_uuid: newer.step_uuid,
            lease_expires_at: new Date(Date.now() - 60_000).toISOString(),
        });
        await fake.until(() => fake.queue.length === 0);
        finish();
        await worker.stop();
        expect(fake.of("release").flatMap((r) => r.body.leases)).toEqual([
            { step_uuid: older.step_uuid, lease_token: older.lease_token },
        ]);
        expect(fake.results.map((r) => r.lease_token)).toEqual([newer.lease_token]);
    });
});

describe("drain", () => {
    test("waits for handlers, reports, and unregisters", async () => {
        const worker = newWorker();
        let finish!: () => void;
        worker.handle("h", () => new Promise<void>((resolve) => (finish = resolve)));
        await worker.start();
        fake.step("h");
        await fake.until(() => finish !== undefined);
        const stopped = worker.stop();
        await fake.until(() => fake.of("drain").length === 1);
        finish();
        await stopped;
        expect(fake.results).toHaveLength(1);
        expect(fake.requests.at(-1)!.action).toBe("leave");
        expect(fake.of("release")).toHaveLength(0);
    });

    test("aborts handlers after the drain timeout and releases their steps", async () => {
        const worker = newWorker({ drainTimeoutMs: 30 });
        let started = false;
        let reason: unknown;
        worker.handle("h", async (_, ctx) => {
            started = true;
            reason = await aborted(ctx.signal);
            throw reason as Error;
        });
        await worker.start();
        const step = fake.step("h");
        await fake.until(() => started);
        await worker.stop();
        expect(reason).toBeInstanceOf(Interrupted);
        expect(fake.results).toHaveLength(0);
        expect(fake.of("release").flatMap((r) => r.body.leases)).toEqual([
            { step_uuid: step.step_uuid, lease_token: step.lease_token },
        ]);
    });

    test("reports a handler that succeeds although it was aborted", async () => {
        const worker = newWorker({ drainTimeoutMs: 30 });
        let started = false;
        worker.handle("h", async (_, ctx) => {
            started = true;
            await aborted(ctx.signal);
            return "saved";
        });
        await worker.start();
        fake.step("h");
        await fake.until(() => started);
        await worker.stop();
        expect(fake.results[0].result).toBe("saved");
    });

    test("releases steps that arrive after its begin", async () => {
        const worker = newWorker();
        fake.rule((r) => {
            if (r.action === "drain") fake.step("ok");
            return undefined;
        });
        await worker.start();
        await fake.until(() => fake.of("claims").length === 1);
        await worker.stop();
        expect(fake.results).toHaveLength(0);
        expect(fake.of("release").flatMap((r) => r.body.leases)).toHaveLength(1);
    });

    test("an operator can drain the worker", async () => {
        const worker = newWorker();
        await worker.start();
        fake.drain = true;
        await worker.finished;
        expect(fake.of("drain")).toHaveLength(0);
        expect(fake.of("leave")).toHaveLength(1);
    });
});

describe("key", () => {
    test("one rejection of the key is logged, and its end", async () => {
        await newWorker().start();
        let rejected = 0;
        fake.rule((r) =>
            r.action === "heartbeat" && rejected++ < 3 ? refused(401, "UNAUTHORIZED", "revoked") : undefined,
        );
        await fake.until(() => log.messages("info").includes("the server accepts the key of this worker again"));
        expect(log.messages("error")).toHaveLength(1);
        expect(log.messages("error")[0]).toContain("rejects the key");
    });
});
