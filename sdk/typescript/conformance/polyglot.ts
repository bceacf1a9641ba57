// The TypeScript worker of the polyglot run, see sdk/conformance/README.md. It runs the step label.
import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker, type StepContext } from "@tasker/sdk";

interface Reservation {
  item: string;
  quantity: number;
  rate: number;
  serial: string;
}

/** execute adds a line to the file of effects, in the middle of some work. It returns the id of this run. */
async function execute(ctx: StepContext): Promise<string> {
  const run = randomUUID();
  const longest = ctx.attempt === 1 ? 40 : 1500; // the report of a frozen worker may arrive meanwhile
  await sleep(Math.random() * longest, undefined, { signal: ctx.signal });
  const step = { task: ctx.taskUuid, step: ctx.stepName, attempt: ctx.attempt };
  const line = JSON.stringify({ ...step, run, language: "typescript", pid: process.pid });
  writeFileSync(process.env.CONFORMANCE_EFFECTS!, line + "\n", { flag: "a" });
  await sleep(Math.random() * longest, undefined, { signal: ctx.signal });
  return run;
}

const worker = new Worker({ namespaces: ["polyglot"], name: "typescript", concurrency: 8 });
worker.handle("label", async (_: unknown, ctx) => {
  const { item, quantity, rate, serial } = await ctx.result<Reservation>("reserve");
  const text = `${quantity} × ${item}`;
  return {
    text,
    length: [...text].length,
    rate: rate * 3,
    serial: String(BigInt(serial) + 1n),
    attempt: ctx.attempt,
    run: await execute(ctx),
  };
});
await worker.run();
