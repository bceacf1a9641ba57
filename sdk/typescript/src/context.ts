import { codeOf, messageOf, Permanent, StepError } from "./errors.js";
import { plain } from "./json.js";
import { withFields, type Logger } from "./log.js";
import { isRefused, isUnknown, type ClaimedStep } from "./protocol.js";
import { validate, type StandardSchema } from "./schema.js";
import { Backoff, sleep } from "./wait.js";

/** Backend reads and saves what a claimed step only refers to. */
export interface Backend {
  /** document reads a document by its API path. */
  document(path: string, signal: AbortSignal): Promise<unknown>;
  /** checkpoint saves a checkpoint, a JSON value. */
  checkpoint(step: ClaimedStep, value: unknown, signal: AbortSignal): Promise<void>;
}

const tries = 5;
const maxCheckpoint = 16 << 10;

/** StepContext is the second argument of a handler: one attempt of a step. */
export class StepContext {
  /** Stored with the result for people. It is not passed to dependents. */
  readonly metadata: Record<string, unknown> = {};
  private saved: { value: unknown } | undefined;
  private logger: Logger | undefined;

  constructor(
    private readonly step: ClaimedStep,
    /** Aborts when the lease is lost, at the timeout of the step, and when a draining worker stops waiting. */
    readonly signal: AbortSignal,
    private readonly backend: Backend,
    private readonly workerLogger: Logger,
  ) {}

  get taskUuid(): string { return this.step.task_uuid; }
  /** Use it as the idempotency key of side effects: a step can run more than once. */
  get stepUuid(): string { return this.step.step_uuid; }
  get namespace(): string { return this.step.namespace; }
  get taskName(): string { return this.step.task_name; }
  get taskVersion(): string { return this.step.task_version; }
  get stepName(): string { return this.step.name; }
  get handler(): string { return this.step.handler; }
  get correlationId(): string { return this.step.correlation_id; }
  /** Number of this attempt, from 1. */
  get attempt(): number { return this.step.attempt; }
  get maxAttempts(): number { return this.step.max_attempts; }
  /** Element of the list if the step is an item of a map step, otherwise undefined. */
  get item(): unknown { return this.step.item; }
  /** Position of the element, from 0, or undefined. */
  get index(): number | undefined { return this.step.index; }
  /** What the template defines for the step. */
  get initialization(): Record<string, unknown> { return (this.step.initialization ?? {}) as Record<string, unknown>; }
  /** Latest checkpoint of this or an earlier attempt, or undefined. */
  get lastCheckpoint(): unknown { return this.saved ? this.saved.value : this.step.checkpoint; }

  /** Names of the steps on which this one depends. */
  get dependencies(): string[] {
    return Object.keys({ ...this.step.dependency_results, ...this.step.dependency_result_refs });
  }

  /** Logger that adds the ids of the step and its task. */
  get log(): Logger {
    return (this.logger ??= withFields(this.workerLogger, {
      task: this.taskUuid, step: this.stepUuid, step_name: this.stepName, attempt: this.attempt,
      correlation_id: this.correlationId,
    }));
  }

  /**
   * result returns the result of a dependency, or null if it has none. It fetches a result that the
   * claim only refers to, and keeps it for further calls. With a schema, it returns the value that
   * the schema outputs.
   *
   * Its errors are permanent, unless the server cannot be reached.
   */
  async result<T = unknown>(name: string, schema?: StandardSchema<unknown, T>): Promise<T> {
    const results = this.step.dependency_results;
    const ref = this.step.dependency_result_refs?.[name];
    if (!Object.hasOwn(results, name)) {
      if (!ref) {
        const names = this.dependencies.join(", ");
        const known = names ? `it depends on ${names}` : "it has no dependencies";
        throw permanent("invalid_input", `step ${this.stepName} does not depend on "${name}": ${known}`);
      }
      results[name] = await this.fetch(`result of step ${name} (${ref.bytes} bytes)`, ref.href);
    }
    const value = results[name];
    return schema ? validate(schema, value, `results.${name}`, "invalid_input") : (value as T);
  }

  /**
   * taskContext returns the whole context of the task. The input of an item of a map step lacks the
   * list; taskContext fetches it.
   */
  async taskContext<T = unknown>(): Promise<T> {
    const { context, context_omitted: omitted, context_href: href } = this.step;
    if (!omitted?.length || !href) return context as T;
    this.step.context = await this.fetch("context of the task", href);
    delete this.step.context_omitted;
    return this.step.context as T;
  }

  /**
   * checkpoint saves a JSON value of at most 16 KiB for later attempts of the step. It replaces the
   * previous checkpoint. Each call is a request: save after a batch, not after each row.
   *
   * It rejects with a permanent failure if the value cannot be stored, and with a TaskerError if the
   * lease is lost or the server cannot be reached.
   */
  async checkpoint(value: unknown): Promise<void> {
    try {
      const copy = plain(value ?? null, "checkpoint");
      const bytes = Buffer.byteLength(JSON.stringify(copy));
      if (bytes > maxCheckpoint) throw new Permanent(`has ${bytes} bytes; the limit is ${maxCheckpoint}`);
      await this.retry("save a checkpoint", () => this.backend.checkpoint(this.step, copy, this.signal),
        (error) => isRefused(error) || codeOf(error) === "STALE_LEASE");
      this.saved = { value: copy };
    } catch (error) {
      if (!(error instanceof Permanent || isRefused(error))) throw error;
      throw permanent("invalid_checkpoint", `checkpoint of step ${this.stepName}: ${messageOf(error)}`, error);
    }
  }

  private async fetch(what: string, href: string): Promise<unknown> {
    const final = (error: unknown) => isRefused(error) || isUnknown(error, this.taskUuid);
    try {
      return await this.retry(`fetch the ${what}`, () => this.backend.document(href, this.signal), final);
    } catch (error) {
      if (this.signal.aborted) throw this.signal.reason;
      const message = `cannot fetch the ${what}: ${messageOf(error)}`;
      if (final(error)) throw permanent("invalid_input", message, error);
      throw new StepError(message, { type: "input_unavailable", cause: error });
    }
  }

  /** retry calls act until it succeeds, fails finally or has failed too often. */
  private async retry<T>(what: string, act: () => Promise<T>, final: (error: unknown) => boolean): Promise<T> {
    const rests = new Backoff();
    for (let i = 1; ; i++) {
      try {
        return await act();
      } catch (error) {
        if (this.signal.aborted || final(error) || i === tries) throw error;
        this.log.warn(`could not ${what}, retrying`, { error: messageOf(error) });
        if (!(await sleep(rests.after(error), this.signal))) throw error;
      }
    }
  }
}

function permanent(type: string, message: string, cause?: unknown): Permanent {
  return new Permanent(message, { type, cause });
}
