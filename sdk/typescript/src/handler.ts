import type { Backend } from "./context.js";
import { StepContext } from "./context.js";
import { messageOf, StepError, StepTimeout } from "./errors.js";
import { plain } from "./json.js";
import type { Logger } from "./log.js";
import type { ClaimedStep } from "./protocol.js";
import { validate, type StandardSchema } from "./schema.js";

/**
 * Handler executes one attempt of a step and returns its result. The input is the context of the
 * task. It may run more than once for a step, so its effects must be idempotent.
 */
export type Handler<In, Out> = (input: In, ctx: StepContext) => Out | Promise<Out>;

/** Schemas of a handler. */
export interface HandlerOptions<In, Out> {
  /** Checks the context of the task. An invalid one is a permanent failure. */
  input?: StandardSchema<unknown, In>;
  /** Checks the result of the handler. An invalid one is a permanent failure. */
  output?: StandardSchema<Out, unknown>;
}

/** A registered handler. */
export interface Registered {
  options: HandlerOptions<unknown, unknown>;
  run: Handler<unknown, unknown>;
}

/** Failure as a report contains it. */
export interface Failure {
  message: string;
  type: string;
  retryable: boolean;
  retry_after_ms?: number | undefined;
  fingerprint?: string | undefined;
  context?: unknown;
}

/** Outcome of an attempt as a report contains it. */
export interface Outcome {
  success: boolean;
  result?: unknown;
  error?: Failure;
  metadata?: unknown;
}

const maxMessage = 256 << 10;
const maxStack = 16 << 10;
const maxEvidence = 64 << 10;

/** execute runs the handler of a step and converts whatever it does to an outcome. It never rejects. */
export async function execute(
  handler: Registered | undefined, step: ClaimedStep, signal: AbortSignal, backend: Backend, logger: Logger,
): Promise<Outcome> {
  const ctx = new StepContext(step, signal, backend, logger);
  try {
    if (!handler) throw new StepError(`this worker has no handler "${step.handler}"`, { type: "unknown_handler" });
    const { input, output } = handler.options;
    const checked = input ? await validate(input, step.context, "input", "invalid_input") : step.context;
    let result = await handler.run(checked, ctx);
    if (output) result = await validate(output, result, "result", "invalid_result");
    return { success: true, result: plain(result ?? null, "result"), metadata: metadataOf(ctx) };
  } catch (error) {
    return { success: false, error: failureOf(error, signal), metadata: metadataOf(ctx) };
  }
}

/** metadataOf drops metadata that is not JSON: it never makes a step fail. */
function metadataOf(ctx: StepContext): unknown {
  if (Object.keys(ctx.metadata).length === 0) return undefined;
  try {
    return plain(ctx.metadata, "metadata");
  } catch (error) {
    ctx.log.warn("dropped metadata", { error: messageOf(error) });
    return undefined;
  }
}

function failureOf(error: unknown, signal: AbortSignal): Failure {
  const own = error instanceof StepError ? error : undefined;
  const timeout = !own && signal.aborted && signal.reason instanceof StepTimeout;
  const evidence = own?.context !== undefined ? own.context : stackOf(error);
  return {
    message: cut(messageOf(error), maxMessage),
    type: timeout ? "step_timeout" : (own?.type ?? typeOf(error)),
    retryable: own?.retryable ?? true,
    retry_after_ms: own?.retryAfterMs,
    fingerprint: own?.fingerprint,
    context: evidence === undefined ? undefined : encodable(evidence),
  };
}

function typeOf(error: unknown): string {
  const name = error instanceof Error ? error.name : undefined;
  return typeof name === "string" && name !== "" ? name : "error";
}

function stackOf(error: unknown): { stack: string } | undefined {
  if (error instanceof StepError || !(error instanceof Error) || typeof error.stack !== "string") return undefined;
  const cause = error.cause === undefined ? "" : `\nCaused by: ${messageOf(error.cause)}`;
  return { stack: cut(error.stack + cause, maxStack) };
}

/** encodable returns evidence as plain JSON, or a note if it is not JSON or too large. */
function encodable(evidence: unknown): unknown {
  try {
    const copy = plain(evidence, "context");
    const { length } = JSON.stringify(copy);
    return length <= maxEvidence ? copy
      : { dropped: `the evidence has ${length} characters; the limit is ${maxEvidence}` };
  } catch (error) {
    return { dropped: `the evidence cannot be encoded: ${messageOf(error)}` };
  }
}

/** cut shortens text in the middle, because causes are at both ends. */
function cut(text: string, most: number): string {
  if (text.length <= most) return text;
  return `${text.slice(0, most / 2)}\n[… ${text.length - most} characters are omitted …]\n${text.slice(-most / 2)}`;
}
