import { path, query, type Client, type Step, type Task } from "./client.js";
import type { FailureOptions } from "./errors.js";
import { now, sleep } from "./wait.js";

/** A task that did not complete, from {@link TaskHandle.result}. */
export class TaskNotComplete extends Error {
  override name = "TaskNotComplete";
  constructor(readonly task: Task, message: string) {
    super(`task ${task.task_uuid} (${task.namespace}/${task.name}) ${message}`);
  }
}

/** The task is cancelled. */
export class TaskCancelled extends TaskNotComplete {
  override name = "TaskCancelled";
}

/** The task has failed for good: its investigation ended as permanently failed. */
export class TaskFailed extends TaskNotComplete {
  override name = "TaskFailed";
}

/** The task cannot progress and waits for an operator. */
export class TaskUnderInvestigation extends TaskNotComplete {
  override name = "TaskUnderInvestigation";
  get investigationUuid(): string {
    return this.task.dlq_entry_uuid ?? "";
  }
}

/** The task has not ended within timeoutMs. */
export class WaitTimeout extends TaskNotComplete {
  override name = "WaitTimeout";
}

/** Options of a wait. */
export interface WaitOptions {
  /** Default: no limit. */
  timeoutMs?: number;
  signal?: AbortSignal;
}

/** Who changes a step, and why. Both are in its history. */
export interface Change {
  reason: string;
  by: string;
  /** Act even if a worker has claimed the step. */
  interrupt?: boolean;
}

const maxWaitMs = 30_000;
const leastPollMs = 500;

/** TaskHandle waits for a task and changes it. */
export class TaskHandle {
  constructor(private readonly client: Client, readonly uuid: string) {}

  get(): Promise<Task> {
    return this.client.get(this.uuid);
  }

  /**
   * wait returns the task when it has ended or waits for an operator. It rejects with
   * {@link WaitTimeout} after timeoutMs.
   */
  async wait(options: WaitOptions = {}): Promise<Task> {
    const end = now() + (options.timeoutMs ?? Infinity);
    for (;;) {
      const began = now();
      const waitMs = Math.round(Math.min(maxWaitMs, Math.max(0, end - began)));
      const task = await this.client.send<Task>("GET", this.path() + query({ wait_ms: waitMs }),
        { task_uuid: "string", status: "string" }, { waitMs, signal: options.signal });
      if (isOver(task)) return task;
      if (now() >= end) {
        throw new WaitTimeout(task, `has not ended within ${options.timeoutMs} ms: it is ${task.status}`);
      }
      // A server that answers at once must not be asked all the time.
      await sleep(Math.min(leastPollMs - (now() - began), end - now()), options.signal);
      options.signal?.throwIfAborted();
    }
  }

  /**
   * result waits for the task and returns the results of its completed steps, by step name. It
   * rejects with {@link TaskCancelled}, {@link TaskFailed}, {@link TaskUnderInvestigation} or
   * {@link WaitTimeout}.
   */
  async result<T = Record<string, unknown>>(options: WaitOptions = {}): Promise<T> {
    const task = await this.wait(options);
    if (task.status === "cancelled") throw new TaskCancelled(task, "is cancelled");
    if (task.status !== "complete") {
      const label = task.dead_letter_label ?? "no reason given";
      const why = `${label}, investigation ${task.dlq_entry_uuid}${failures(task)}`;
      if (task.dead_letter_mark === "permanently_failed") throw new TaskFailed(task, `has failed: ${why}`);
      throw new TaskUnderInvestigation(task, `waits for an operator: ${why}`);
    }
    const results: Record<string, unknown> = {};
    for (const { name, results: outcome } of task.steps ?? []) {
      const result = (outcome as { result?: unknown } | null)?.result;
      if (result !== undefined) results[name] = result;
    }
    return results as T;
  }

  /** cancel cancels the task; with compensate, after the compensation of its completed steps. */
  cancel(options: { reason?: string; by?: string; compensate?: boolean } = {}): Promise<Task> {
    const search = query({ reason: options.reason, cancelled_by: options.by, compensate: options.compensate });
    return this.client.send("DELETE", this.path() + search, { task_uuid: "string" });
  }

  /** resetStep gives a failed step its attempts again. The step is named by its name or UUID. */
  resetStep(step: string, change: Change & { discardCheckpoint?: boolean }): Promise<Step> {
    const fields = { reset_by: change.by, discard_checkpoint: change.discardCheckpoint };
    return this.operate(step, "reset_for_retry", change, fields);
  }

  /** resolveStep completes a failed step without a result. */
  resolveStep(step: string, change: Change): Promise<Step> {
    return this.operate(step, "resolve_manually", change, { resolved_by: change.by });
  }

  /** completeStep completes a failed step with the result of manual work. */
  completeStep(step: string, change: Change & { result: unknown; metadata?: unknown }): Promise<Step> {
    const data = { result: change.result, metadata: change.metadata };
    return this.operate(step, "complete_manually", change, { completed_by: change.by, completion_data: data });
  }

  /** completeExternal reports the result of an external step. Reporting the same again is safe. */
  completeExternal(
    step: string, outcome: { result?: unknown; source?: string; metadata?: unknown } = {},
  ): Promise<Step> {
    return this.report(step, { success: true, ...outcome });
  }

  /** failExternal reports that an external step has failed. */
  failExternal(
    step: string, message: string, failure: FailureOptions & { retryable?: boolean; source?: string } = {},
  ): Promise<Step> {
    const { source, type, retryable, context, fingerprint } = failure;
    return this.report(step, { success: false, source, error: { message, type, retryable, context, fingerprint } });
  }

  private report(step: string, outcome: object): Promise<Step> {
    return this.client.send("POST", `${this.path(step)}/completion`, { step_uuid: "string" }, { body: outcome });
  }

  private operate(step: string, action: string, { reason, interrupt }: Change, fields: object): Promise<Step> {
    const body = { action_type: action, reason, interrupt, ...fields };
    return this.client.change("PATCH", this.path(step), { step_uuid: "string" }, body);
  }

  private path(step?: string): string {
    return step === undefined ? path("tasks", this.uuid) : path("tasks", this.uuid, "workflow_steps", step);
  }
}

/**
 * isOver reports whether a task has ended or waits for an operator. A task whose failed step was
 * repaired continues, although its investigation may still be open.
 */
function isOver(task: Task): boolean {
  if (task.status === "complete" || task.status === "cancelled") return true;
  if (!task.dead_lettered || task.dead_letter_mark === "recovered") return false;
  const ofStep = task.dead_letter_mark === "under_investigation" && task.dead_letter_reason === "max_retries_exceeded";
  const repaired = ofStep && task.failed_steps === 0 && task.status !== "error";
  return !repaired;
}

function failures(task: Task): string {
  const failed = (task.steps ?? []).filter((step) => step.current_state === "error");
  const causes = failed.map((step) => [step.name, (step.error as { message?: string } | null)?.message ?? "failed"]);
  return causes.map(([name, cause]) => `; step ${name}: ${cause}`).join("");
}
