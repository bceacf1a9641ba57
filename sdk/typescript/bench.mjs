// Measures no-op steps per second of one worker against a real server.
// usage: node bench.mjs [--steps 20000] [--concurrency 500]   (TASKER_BINARY or tasker in PATH)
import { parseArgs } from "node:util";
import { silentLogger, Worker } from "@tasker/sdk";
import { DevServer } from "@tasker/sdk/testing";

const { values } = parseArgs({
  options: { steps: { type: "string", default: "20000" }, concurrency: { type: "string", default: "500" } },
});
const stepsPerTask = 10;
const total = Number(values.steps);
const names = Array.from({ length: stepsPerTask }, (_, i) => `noop_${i}`);

const server = await DevServer.start({ testClock: false });
try {
  await server.client.templates.put({
    namespace_name: "bench", name: "noop", version: "1.0.0",
    steps: names.map((name) => ({ name, handler: { callable: "noop" } })),
  });
  const task = { namespace: "bench", name: "noop", context: { n: 1 } };
  for (let left = total / stepsPerTask; left > 0; left -= 1000) {
    await server.client.createMany(Array.from({ length: Math.min(left, 1000) }, () => task));
  }

  let done = 0;
  let finish;
  const all = new Promise((resolve) => (finish = resolve));
  const memory = () => Math.round(process.memoryUsage().rss / 2 ** 20);
  const concurrency = Number(values.concurrency);
  const worker = new Worker({ namespaces: ["bench"], url: server.url, concurrency, logger: silentLogger });
  worker.handle("noop", () => {
    if (++done === 10_000) console.log(`memory at 10,000 steps: ${memory()} MiB`);
    if (done === total) finish();
    return null;
  });
  const cpu = process.cpuUsage();
  const began = performance.now();
  await worker.start();
  await all;
  await worker.stop();
  const seconds = (performance.now() - began) / 1000;
  const used = process.cpuUsage(cpu);
  const busy = (used.user + used.system) / 1e6;
  console.log(`memory at ${total} steps: ${memory()} MiB`);
  console.log(`${total} steps in ${seconds.toFixed(2)} s: ${Math.round(total / seconds)} steps/s`);
  console.log(`worker process: ${busy.toFixed(2)} s of CPU, ${Math.round(total / busy)} steps per CPU second`);
  console.log(busy / seconds > 0.9 ? "the worker is the bound" : "the server is the bound");
} finally {
  await server.stop();
}
