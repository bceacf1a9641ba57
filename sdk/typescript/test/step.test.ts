import { describe, expect, test } from "vitest";
import * as v from "valibot";
import { z } from "zod";
import { Permanent, RetryAfter, StepError } from "@tasker/sdk";
import { runStep } from "@tasker/sdk/testing";

describe("schemas", () => {
    const zod = z.object({ amount: z.int(), lines: z.array(z.object({ sku: z.string() })).default([]) });
    const valibot = v.object({ amount: v.pipe(v.number(), v.integer()) });

    test("zod: the input is what the schema outputs", async () => {
        const outcome = await runStep((input) => input, { input: { amount: 5, other: 1 } }, { input: zod });
        expect(outcome).toEqual({ success: true, result: { amount: 5, lines: [] }, checkpoints: [] });
    });

    test("zod: an invalid input is a permanent failure that names the fields", async () => {
        const outcome = await runStep(() => 1, { input: { amount: "5", lines: [{ sku: "a" }, {}] } }, { input: zod });
        expect(outcome.failure).toMatchObject({ type: "invalid_input", retryable: false });
        expect(outcome.failure!.message).toMatch(/^input\.amount: .*; input\.lines\[1\]\.sku: /);
    });

    test("valibot: an invalid input is a permanent failure that names the field", async () => {
        const outcome = await runStep(() => 1, { input: { amount: 1.5 } }, { input: valibot });
        expect(outcome.failure).toMatchObject({ type: "invalid_input", retryable: false });
        expect(outcome.failure!.message).toMatch(/^input\.amount: /);
    });

    test("an invalid result is a permanent failure that names the field", async () => {
        const outcome = await runStep(
            () => ({ id: 5 as unknown as string }),
            {},
            { output: z.object({ id: z.string() }) },
        );
        expect(outcome.failure).toMatchObject({ type: "invalid_result", retryable: false });
        expect(outcome.failure!.message).toMatch(/^result\.id: /);
    });

    test("the types of input and result follow from the schemas", async () => {
        const outcome = await runStep(
            ({ amount }) => ({ doubled: amount * 2 }),
            { input: { amount: 2 } },
            { input: zod, output: z.object({ doubled: z.number() }) },
        );
        expect(outcome.result).toEqual({ doubled: 4 });
    });

    test("a dependency result is validated", async () => {
        const outcome = await runStep(async (_, ctx) => ctx.result("charge", z.object({ id: z.string() })), {
            results: { charge: { id: 1 } },
        });
        expect(outcome.failure).toMatchObject({ type: "invalid_input", retryable: false });
        expect(outcome.failure!.message).toMatch(/^results\.charge\.id: /);
    });

    test("many faults are shortened", async () => {
        const outcome = await runStep(
            () => 1,
            { input: { ids: Array(9).fill("x") } },
            { input: z.object({ ids: z.array(z.int()) }) },
        );
        expect(outcome.failure!.message).toMatch(/; 4 more$/);
        expect((outcome.failure!.context as { faults: unknown[] }).faults).toHaveLength(9);
    });
});

describe("context", () => {
    test("has the values of the step", async () => {
        const outcome = await runStep(
            async (input, ctx) => [
                input,
                ctx.item,
                ctx.index,
                ctx.attempt,
                ctx.maxAttempts,
                ctx.initialization,
                ctx.dependencies,
                await ctx.result("a"),
                await ctx.taskContext(),
            ],
            {
                input: { n: 1 },
                item: "i",
                index: 2,
                attempt: 3,
                maxAttempts: 4,
                initialization: { x: 1 },
                results: { a: null },
            },
        );
        expect(outcome.result).toEqual([{ n: 1 }, "i", 2, 3, 4, { x: 1 }, ["a"], null, { n: 1 }]);
    });

    test.each([
        [{}, 'step step does not depend on "x": it has no dependencies'],
        [{ a: 1, b: 2 }, 'step step does not depend on "x": it depends on a, b'],
    ])("the result of another step is a permanent failure", async (results, message) => {
        const outcome = await runStep(async (_, ctx) => ctx.result("x"), { results });
        expect(outcome.failure).toMatchObject({ message, type: "invalid_input", retryable: false });
    });

    test("checkpoints", async () => {
        const outcome = await runStep(
            async (_, ctx) => {
                const before = ctx.lastCheckpoint;
                await ctx.checkpoint({ row: 2 });
                return [before, ctx.lastCheckpoint];
            },
            { lastCheckpoint: { row: 1 } },
        );
        expect(outcome).toMatchObject({ result: [{ row: 1 }, { row: 2 }], checkpoints: [{ row: 2 }] });
    });

    test.each([
        [{ row: 1n }, "checkpoint of step step: checkpoint.row: bigint is not JSON"],
        ["x".repeat(20_000), "checkpoint of step step: has 20002 bytes; the limit is 16384"],
    ])("a checkpoint that cannot be stored is a permanent failure", async (value, message) => {
        const outcome = await runStep(async (_, ctx) => ctx.checkpoint(value));
        expect(outcome.failure).toMatchObject({ message, type: "invalid_checkpoint", retryable: false });
    });

    test("log adds the ids of the step", async () => {
        const records: unknown[] = [];
        const add = (message: string, fields?: object) => void records.push({ message, ...fields });
        await runStep((_, ctx) => ctx.log.warn("slow", { ms: 5 }), {
            attempt: 2,
            logger: { debug: add, info: add, warn: add, error: add },
        });
        expect(records).toMatchObject([
            {
                message: "slow",
                ms: 5,
                step_name: "step",
                attempt: 2,
                task: expect.any(String),
                step: expect.any(String),
            },
        ]);
    });

    test("metadata that is not JSON is dropped", async () => {
        const outcome = await runStep((_, ctx) => {
            ctx.metadata.m = new Map();
            return 1;
        });
        expect(outcome).toEqual({ success: true, result: 1, checkpoints: [] });
    });
});

describe("failures", () => {
    test.each([
        [new Error("boom"), { message: "boom", type: "Error", retryable: true }],
        [new TypeError("bad"), { message: "bad", type: "TypeError", retryable: true }],
        ["text", { message: "text", type: "error", retryable: true }],
        [undefined, { message: "undefined", type: "error", retryable: true }],
        [Object.create(null), { message: "an error whose message cannot be read", type: "error", retryable: true }],
        [new StepError("s", { type: "declined" }), { message: "s", type: "declined", retryable: true }],
        [new Permanent("p"), { message: "p", type: "Permanent", retryable: false }],
        [new RetryAfter(-5, "r"), { message: "r", type: "RetryAfter", retryable: true, retry_after_ms: 0 }],
    ])("%o", async (error, failure) => {
        const outcome = await runStep(() => {
            throw error as Error;
        });
        expect(outcome.failure).toMatchObject(failure);
    });

    test("evidence that is not JSON or too large is replaced with a note", async () => {
        const notes = [];
        for (const context of [{ f: () => 1 }, "x".repeat(70_000)]) {
            notes.push((await runStep(() => Promise.reject(new Permanent("p", { context })))).failure!.context);
        }
        expect(notes).toEqual([
            { dropped: "the evidence cannot be encoded: context.f: function is not JSON" },
            { dropped: "the evidence has 70002 characters; the limit is 65536" },
        ]);
    });

    test("the cause is part of the evidence, and a long message is cut in the middle", async () => {
        const outcome = await runStep(() =>
            Promise.reject(new Error("a" + "x".repeat(300_000) + "z", { cause: new Error("root") })),
        );
        expect(outcome.failure!.message).toMatch(/^ax+\n\[… \d+ characters are omitted …\]\nx+z$/);
        expect((outcome.failure!.context as { stack: string }).stack).toContain("Caused by: root");
    });

    test("a delay must be a number", () => {
        expect(() => new RetryAfter(NaN, "r")).toThrow("invalid delay NaN");
    });
});
