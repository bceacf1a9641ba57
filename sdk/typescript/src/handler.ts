import type { Backend } from "./context.js";
import { StepContext } from "./context.js";
import { messageOf, Permanent, StepError, StepTimeout } from "./errors.js";
import { encode } from "./json.js";
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
  retry_after_ms?: number;
  fingerprint?: string;
  context?: unknown;
}

/** Outcome of an attempt. The result and the metadata are JSON text. */
export interface Outcome {
  success: boolean;
  result?: string;
  failure?: Failure;
  metadata?: string | undefined;
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
    return { success: true, result: encodeResult(result), metadata: encodeMetadata(ctx) };
  } catch (error) {
    return { success: false, failure: failureOf(error, signal), metadata: encodeMetadata(ctx) };
  }
}

function encodeResult(result: unknown): string {
  try {
    return encode(result, "result");
  } catch (error) {
    throw new Permanent(messageOf(error), { type: "invalid_result", cause: error });
  }
}

/** encodeMetadata drops metadata that is not JSON: it never makes a step fail. */
function encodeMetadata(ctx: StepContext): string | undefined {
  if (Object.keys(ctx.metadata).length === 0) return undefined;
  try {
    return encode(ctx.metadata, "metadata");
  } catch (error) {
    ctx.log.warn("dropped metadata", { error: messageOf(error) });
    return undefined;
  }
}

function failureOf(error: unknown, signal: AbortSignal): Failure {
  const own = error instanceof StepError ? error : undefined;
  const failure: Failure = {
    message: cut(messageOf(error), maxMessage), type: own?.type ?? typeOf(error), retryable: own?.retryable ?? true,
  };
  if (signal.aborted && signal.reason instanceof StepTimeout && !own) failure.type = "step_timeout";
  if (own?.retryAfterMs !== undefined) failure.retry_after_ms = own.retryAfterMs;
  if (own?.fingerprint !== undefined) failure.fingerprint = own.fingerprint;
  const evidence = own?.context !== undefined ? own.context : stackOf(error);
  if (evidence !== undefined) failure.context = encodable(evidence);
  return failure;
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
    const text = encode(evidence, "context");
    if (text.length <= maxEvidence) return JSON.parse(text);
    return { dropped: `the evidence has ${text.length} characters; the limit is ${maxEvidence}` };
  } catch (error) {
    return { dropped: `the evidence cannot be encoded: ${messageOf(error)}` };
  }
}

/** cut shortens text in the middle, because causes are at both ends. */
function cut(text: string, most: number): string {
  if (text.length <= most) return text;
  return `${text.slice(0, most / 2)}\n[… ${text.length - most} characters are omitted …]\n${text.slice(-most / 2)}`;
}
