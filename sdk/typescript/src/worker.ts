import { work } from "./drain.js";
import { TaskerError } from "./errors.js";
import type { Handler, HandlerOptions, Registered } from "./handler.js";
import type { ConnectionOptions } from "./http.js";
import type { Logger } from "./log.js";
import { Run } from "./run.js";

/** Options of a {@link Worker}. */
export interface WorkerOptions extends ConnectionOptions {
  /** Namespaces whose steps the worker claims. */
  namespaces: string[];
  /** Shown in lists. Default: the host name. */
  name?: string;
  /** Version of your program, shown in lists. */
  version?: string;
  /** Maximum number of steps in progress. Default 10. */
  concurrency?: number;
  /** How long handlers may continue during a drain, in milliseconds. Default 20000. */
  drainTimeoutMs?: number;
  /** Default: one line of JSON per message on stderr. */
  logger?: Logger;
}

/** Worker executes steps with registered handlers. */
export class Worker {
  private readonly current: Run;
  private ended: Promise<void> | undefined;

  /** It throws INVALID if an option is malformed. */
  constructor(options: WorkerOptions) {
    if (!options.namespaces?.length) throw new TaskerError("INVALID", "invalid namespaces: name at least one");
    const { concurrency } = options;
    if (concurrency !== undefined && !(Number.isInteger(concurrency) && concurrency >= 1 && concurrency <= 10_000)) {
      throw new TaskerError("INVALID", `invalid concurrency ${concurrency}: must be an integer from 1 to 10000`);
    }
    this.current = new Run(options);
  }

  /**
   * handle registers a handler by the name that templates use. With schemas, the input and the
   * result are checked; a value that does not validate is a permanent failure that names the field.
   */
  handle<In = unknown, Out = unknown>(name: string, handler: Handler<In, Out>): this;
  handle<In = unknown, Out = unknown>(name: string, options: HandlerOptions<In, Out>, handler: Handler<In, Out>): this;
  handle<In, Out>(name: string, second: Handler<In, Out> | HandlerOptions<In, Out>, third?: Handler<In, Out>): this {
    const [options, run] = typeof second === "function" ? [{}, second] : [second, third];
    if (!name || typeof run !== "function") throw new TypeError(`handler "${name}" requires a name and a function`);
    const { handlers } = this.current;
    if (handlers.has(name)) throw new TypeError(`handler "${name}" is registered twice`);
    handlers.set(name, { options, run: run as Registered["run"] });
    return this;
  }

  /**
   * run executes steps until SIGTERM or SIGINT, or until an operator drains the worker. Then it
   * drains: it claims no more steps, lets handlers finish within drainTimeoutMs, reports, releases
   * what is not finished, and resolves. A second signal ends the process at once.
   *
   * It rejects with a TaskerError if the server rejects the worker: wrong key, namespace or version.
   * It retries while the server cannot be reached.
   */
  async run(): Promise<void> {
    const stop = () => this.current.stopping.abort();
    const signals = ["SIGTERM", "SIGINT"] as const;
    for (const signal of signals) process.once(signal, stop);
    try {
      await this.start();
      await this.finished;
    } finally {
      for (const signal of signals) process.off(signal, stop);
    }
  }

  /** start registers the worker and resolves. It rejects as run does. Use stop or finished afterwards. */
  async start(): Promise<void> {
    const run = this.current;
    if (this.ended) throw new Error("the worker has been started already");
    if (run.handlers.size === 0) throw new Error("the worker requires at least one handler");
    this.ended = Promise.resolve();
    try {
      await run.start();
    } catch (error) {
      await run.heartbeat.stop();
      run.api.transport.close();
      if (run.stopping.signal.aborted && !run.failure) return; // ending before the start is not a failure
      throw run.failure ?? error;
    }
    this.ended = work(run).finally(() => run.api.transport.close());
    this.ended.catch(() => undefined); // finished and stop report it
  }

  /** finished resolves when the worker has drained. It rejects if the server rejected the worker later. */
  get finished(): Promise<void> {
    return this.ended ?? Promise.resolve();
  }

  /** stop drains the worker and resolves when it has ended. */
  stop(): Promise<void> {
    this.current.stopping.abort();
    return this.finished;
  }
}
