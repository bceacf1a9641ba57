import { spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, type Task } from "../client.js";
import type { Handler } from "../handler.js";
import { silentLogger } from "../log.js";
import type { TaskHandle } from "../task.js";
import { now, sleep } from "../wait.js";
import { Worker } from "../worker.js";

const untilMs = 10_000;
const pollMs = 20;
const shownOutput = 4_000;

/** Options of {@link DevServer.start}. */
export interface DevServerOptions {
  /** The tasker binary. Default: TASKER_BINARY, or tasker in PATH. */
  binary?: string;
  /** Directory of templates to register. */
  templates?: string;
  /** Start with the test clock, which advance moves. Default true. */
  testClock?: boolean;
  /** Data directory. Default: a new one, which stop deletes. */
  dataDir?: string;
  /** Additional arguments of tasker dev. */
  args?: string[];
  /** How long the start may take, in milliseconds. Default 60000. */
  timeoutMs?: number;
}

type Outcome = unknown;

/**
 * Outcomes of a handler, one per call; the last one repeats. An Error fails the attempt, a function
 * is called as a handler, and anything else is the result.
 */
export type Script = Record<string, Outcome[]>;

/** DevServer is a server with its own PostgreSQL, started by `tasker dev` on a free port. */
export class DevServer {
  readonly client: Client;
  private readonly workers: Worker[] = [];

  private constructor(
    readonly url: string, private readonly process: ChildProcess, private readonly dataDir: string | undefined,
  ) {
    this.client = new Client({ url });
  }

  /** start starts a server. It rejects with the output of the server if it does not start. */
  static async start(options: DevServerOptions = {}): Promise<DevServer> {
    const binary = options.binary ?? (process.env.TASKER_BINARY || "tasker");
    const own = options.dataDir === undefined ? join(tmpdir(), `tasker-dev-${randomUUID()}`) : undefined;
    const args = ["dev", "--listen", "127.0.0.1:0", "--data-dir", options.dataDir ?? own!];
    if (options.testClock !== false) args.push("--test-clock");
    if (options.templates !== undefined) args.push("--templates", options.templates);
    // The server rejects variables that it does not know, such as TASKER_BINARY.
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("TASKER_")));
    const child = spawn(binary, [...args, ...(options.args ?? [])], { stdio: ["ignore", "pipe", "pipe"], env });
    try {
      return new DevServer(await ready(child, binary, options.timeoutMs ?? 60_000), child, own);
    } catch (error) {
      child.kill("SIGTERM");
      if (own !== undefined) await rm(own, { recursive: true, force: true });
      throw error;
    }
  }

  /** advance moves the test clock of the server and returns its new time. */
  async advance(ms: number): Promise<Date> {
    const sending = { body: { advance_ms: ms }, repeatable: false };
    const answer = await this.client.send<{ now: string }>("POST", "/test/clock", { now: "string" }, sending);
    return new Date(answer.now);
  }

  /** until returns the task when a condition holds. It rejects after 10 seconds of real time. */
  async until(task: TaskHandle, condition: (task: Task) => boolean): Promise<Task> {
    const end = now() + untilMs;
    for (;;) {
      const current = await task.get();
      if (condition(current)) return current;
      if (now() > end) throw new Error(`the condition did not hold in time: task ${task.uuid} is ${current.status}`);
      await sleep(pollMs);
    }
  }

  /** worker returns a worker that logs nothing. The caller adds handlers and starts it. */
  worker(...namespaces: string[]): Worker {
    const worker = new Worker({ namespaces, url: this.url, logger: silentLogger, drainTimeoutMs: 1_000 });
    this.workers.push(worker);
    return worker;
  }

  /** script starts a worker whose handlers return scripted outcomes. */
  async script(namespace: string, script: Script): Promise<Worker> {
    const worker = this.worker(namespace);
    for (const [name, outcomes] of Object.entries(script)) worker.handle(name, scripted(name, outcomes));
    await worker.start();
    return worker;
  }

  /** stop ends the workers and the server, and deletes its data. */
  async stop(): Promise<void> {
    await Promise.allSettled(this.workers.map((worker) => worker.stop()));
    this.client.close();
    if (this.process.exitCode === null && this.process.signalCode === null) {
      const ended = new Promise((resolve) => this.process.once("exit", resolve));
      this.process.kill("SIGTERM");
      await ended;
    }
    if (this.dataDir !== undefined) await rm(this.dataDir, { recursive: true, force: true });
  }
}

function scripted(name: string, outcomes: Outcome[]): Handler<unknown, unknown> {
  if (outcomes.length === 0) throw new TypeError(`the script of handler "${name}" has no outcome`);
  let calls = 0;
  return (input, ctx) => {
    const outcome = outcomes[Math.min(calls++, outcomes.length - 1)];
    if (outcome instanceof Error) throw outcome;
    return typeof outcome === "function" ? (outcome as Handler<unknown, unknown>)(input, ctx) : outcome;
  };
}

/** ready resolves to the URL that the server prints when it is ready. */
function ready(child: ChildProcess, binary: string, timeoutMs: number): Promise<string> {
  return new Promise((resolve, reject) => {
    let output = "";
    const fail = (why: string) => reject(new Error(`${binary} dev ${why}${output ? `:\n${output}` : ""}`));
    for (const stream of [child.stdout!, child.stderr!]) {
      stream.on("data", (chunk: Buffer) => {
        output = (output + chunk.toString()).slice(-shownOutput);
        const url = /tasker is ready at (https?:\/\/\S+)\s/.exec(output)?.[1];
        if (url !== undefined) resolve(url);
      });
    }
    setTimeout(() => fail(`was not ready within ${timeoutMs} ms`), timeoutMs).unref();
    child.once("error", (error) => fail(`could not start: ${error.message}; set TASKER_BINARY or the option binary`));
    child.once("exit", (code) => fail(`ended with status ${code}`));
  });
}
