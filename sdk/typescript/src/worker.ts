import { hostname } from "node:os";
import { work } from "./drain.js";
import { messageOf, TaskerError } from "./errors.js";
import type { Handler, HandlerOptions, Registered } from "./handler.js";
import { Transport, type ConnectionOptions, type TlsOptions } from "./http.js";
import { keyFromEnvironment } from "./key.js";
import { jsonLogger, type Logger } from "./log.js";
import { WorkerApi } from "./protocol.js";
import { Run } from "./run.js";

/** Options of a {@link Worker}. */
export interface WorkerOptions {
  /** Namespaces whose steps the worker claims. */
  namespaces: string[];
  /** Base URL of the server. Default: TASKER_URL, or http://127.0.0.1:8080. */
  url?: string;
  /** API key. Default: TASKER_TOKEN. */
  key?: string;
  /** File with the API key, read again when it changes. Default: TASKER_TOKEN_FILE. */
  keyFile?: string;
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
  /** TLS settings, such as a client certificate. */
  tls?: TlsOptions;
}

const defaultConcurrency = 10;
const defaultDrainTimeoutMs = 20_000;

/** Worker executes steps with registered handlers. */
export class Worker {
  private readonly handlers = new Map<string, Registered>();
  private readonly connection: ConnectionOptions;
  private readonly stopping = new AbortController();
  private announce = true;
  private failure: Error | undefined;
  private ended: Promise<void> | undefined;

  /** It throws INVALID if an option is malformed. */
  constructor(private readonly options: WorkerOptions) {
    if (!options.namespaces?.length) throw new TaskerError("INVALID", "invalid namespaces: name at least one");
    const { concurrency } = options;
    if (concurrency !== undefined && !(Number.isInteger(concurrency) && concurrency >= 1 && concurrency <= 10_000)) {
      throw new TaskerError("INVALID", `invalid concurrency ${concurrency}: must be an integer from 1 to 10000`);
    }
    const key = options.key === undefined && options.keyFile === undefined ? keyFromEnvironment() : options;
    this.connection = { url: options.url, key: key.key, keyFile: key.keyFile, tls: options.tls };
    new Transport(this.connection).close(); // reports malformed options now
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
    if (this.handlers.has(name)) throw new TypeError(`handler "${name}" is registered twice`);
    this.handlers.set(name, { options: options, run: run as Registered["run"] });
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
    const stop = () => this.stopping.abort();
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
    if (this.ended) throw new Error("the worker has been started already");
    if (this.handlers.size === 0) throw new Error("the worker requires at least one handler");
    const { options } = this;
    const transport = new Transport(this.connection);
    const run = new Run({
      connection: this.connection,
      spec: {
        name: options.name || hostname() || "worker", namespaces: options.namespaces,
        handlers: [...this.handlers.keys()], version: options.version,
        max_concurrency: options.concurrency ?? defaultConcurrency,
      },
      drainTimeoutMs: options.drainTimeoutMs ?? defaultDrainTimeoutMs,
      log: options.logger ?? jsonLogger, handlers: this.handlers,
    }, new WorkerApi(transport), (error) => this.end(error));
    this.ended = Promise.resolve();
    try {
      await run.start(this.stopping.signal);
    } catch (error) {
      transport.close();
      if (this.stopping.signal.aborted) return; // ending before the start is not a failure
      throw named(error, run.options.spec.name);
    }
    this.ended = work(run, this.stopping.signal, () => this.announce).finally(() => transport.close());
    this.ended.catch(() => undefined); // finished and stop report it
  }

  /** finished resolves when the worker has drained. It rejects if the server rejected the worker later. */
  get finished(): Promise<void> {
    return (this.ended ?? Promise.resolve()).then(() => {
      if (this.failure) throw this.failure;
    });
  }

  /** stop drains the worker and resolves when it has ended. */
  stop(): Promise<void> {
    this.stopping.abort();
    return this.finished;
  }

  private end(error?: Error): void {
    this.failure ??= error;
    this.announce = false;
    this.stopping.abort();
  }
}

/** named adds the worker to the error of a registration. */
function named(error: unknown, worker: string): Error {
  if (!(error instanceof TaskerError)) return error as Error;
  return new TaskerError(error.code, `register worker ${worker}: ${messageOf(error)}`,
    { status: error.status, details: error.details });
}
