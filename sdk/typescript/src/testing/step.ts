import { randomUUID } from "node:crypto";
import { execute, type Failure, type Handler, type HandlerOptions } from "../handler.js";
import { silentLogger, type Logger } from "../log.js";
import type { ClaimedStep } from "../protocol.js";

/** What {@link runStep} passes to a handler. */
export interface StepInput {
  /** Context of the task. */
  input?: unknown;
  /** Results of the dependencies, by step name. */
  results?: Record<string, unknown>;
  initialization?: Record<string, unknown>;
  item?: unknown;
  index?: number;
  attempt?: number;
  maxAttempts?: number;
  lastCheckpoint?: unknown;
  /** Aborts the signal of the handler, for example to test a lost lease. */
  signal?: AbortSignal;
  logger?: Logger;
}

/** Outcome of {@link runStep}, as the worker would report it. */
export interface StepOutcome {
  success: boolean;
  /** Result after a round trip through JSON. */
  result?: unknown;
  failure?: Failure;
  metadata?: unknown;
  /** Checkpoints that the handler has saved, in order. */
  checkpoints: unknown[];
}

/** runStep runs a handler once without a server, as a worker would. It does not reject. */
export async function runStep<In, Out>(
  handler: Handler<In, Out>, given: StepInput = {}, options: HandlerOptions<In, Out> = {},
): Promise<StepOutcome> {
  const { signal = new AbortController().signal, logger = silentLogger, ...step } = given;
  const checkpoints: unknown[] = [];
  const backend = {
    document: (path: string) => Promise.reject(new Error(`runStep has no server to read ${path} from`)),
    checkpoint: (_: ClaimedStep, value: unknown) => {
      checkpoints.push(value);
      return Promise.resolve();
    },
  };
  const registered = { options, run: handler } as Parameters<typeof execute>[0];
  const { error: failure, ...outcome } = await execute(registered, claimed(step), signal, backend, logger);
  return JSON.parse(JSON.stringify({ ...outcome, failure, checkpoints })) as StepOutcome;
}

function claimed({ input, results, lastCheckpoint, maxAttempts, ...given }: StepInput): ClaimedStep {
  return {
    step_uuid: randomUUID(), task_uuid: randomUUID(), namespace: "test", task_name: "test", task_version: "1.0.0",
    name: "step", handler: "handler", attempt: 1, max_attempts: maxAttempts ?? 3,
    lease_token: randomUUID(), lease_expires_at: new Date(Date.now() + 30_000).toISOString(), deadline: null,
    correlation_id: randomUUID(), context: input ?? {}, dependency_results: { ...results },
    initialization: {}, checkpoint: lastCheckpoint, ...given,
  };
}
