// The worker of the conformance suite, with the public API of the SDK only.
import { setTimeout as sleep } from "node:timers/promises";
import { Permanent, RetryAfter, StepError, Worker, type StepContext } from "@tasker/sdk";
import { z } from "zod";

type Keys = Record<string, unknown>;
type Given = Keys & { ms?: number; message?: string; type?: string; bytes?: number; of?: string; text?: string };

const env = process.env;
const number = (name: string, other: number) => Number(env[name] || other);

const worker = new Worker({
  namespaces: [env.CONFORMANCE_NAMESPACE || "conformance"],
  name: env.CONFORMANCE_NAME || "conformance",
  concurrency: number("CONFORMANCE_CONCURRENCY", 4),
  drainTimeoutMs: number("CONFORMANCE_DRAIN_MS", 5000),
  ...(env.TASKER_API_KEY_FILE ? { keyFile: env.TASKER_API_KEY_FILE } : {}),
});

/** keys returns the context of the task, overridden by the initialization of the step. */
function keys(input: unknown, ctx: StepContext): Given {
  return { ...(input as Keys), ...ctx.initialization };
}

function handle(name: string, run: (given: Given, ctx: StepContext, input: unknown) => unknown): void {
  worker.handle(name, (input, ctx) => run(keys(input, ctx), ctx, input));
}

handle("echo", async (_, ctx, input) => {
  const results: Keys = {};
  for (const name of ctx.dependencies) results[name] = await ctx.result(name);
  return {
    context: input, initialization: ctx.initialization, results,
    attempt: ctx.attempt, task_uuid: ctx.taskUuid, step_uuid: ctx.stepUuid,
  };
});
handle("item", (_, ctx) => ({ item: ctx.item ?? null, index: ctx.index ?? null }));
handle("sleep", async ({ ms }, ctx) => {
  await sleep(Number(ms), undefined, { signal: ctx.signal });
  return { slept_ms: ms };
});
handle("block", ({ ms }) => {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, Number(ms));
  return { blocked_ms: ms };
});
handle("fail", ({ message, type }) => {
  throw new StepError(String(message), { type: type ?? "Boom" });
});
handle("fail_permanent", ({ message, type }) => {
  throw new Permanent(String(message), { type: type ?? "Boom" });
});
handle("retry_after", ({ ms, message }) => {
  throw new RetryAfter(Number(ms), message ?? "not yet");
});
handle("panic", () => (undefined as unknown as { missing: { field: number } }).missing.field);
handle("bad_result", () => ({ items: [{ when: "now" }, { when: () => 1 }] }));
handle("nan_result", () => ({ value: NaN }));
worker.handle("typed", { input: z.object({ amount: z.int(), currency: z.string() }) }, ({ amount }) => ({ amount }));
handle("big", ({ bytes }) => ({ data: "x".repeat(Number(bytes)) }));
handle("checkpoint", async (_, ctx) => {
  const last = (ctx.lastCheckpoint as { row: number } | undefined)?.row ?? 0;
  if (last >= 3) return { row: 3 };
  await ctx.checkpoint({ row: last + 1 });
  if (last + 1 < 3) throw new StepError(`at row ${last + 1}`);
  return { row: 3 };
});
handle("result_of", async ({ of }, ctx) => ({ value: await ctx.result(String(of)) }));
handle("unicode", ({ text }) => ({ text, length: [...String(text)].length }));
handle("context_of", async (_, ctx) => ({ keys: Object.keys(await ctx.taskContext<Keys>()).sort() }));

try {
  await worker.run();
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exit(1);
}
process.exit(0);
