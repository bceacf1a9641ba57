/** Details of a failed attempt, for {@link StepError}. */
export interface FailureOptions {
  /** Type for programs and statistics, such as card_declined. Default: the name of the error. */
  type?: string;
  /** Evidence for the investigation, as JSON. */
  context?: unknown;
  /** Groups failures of the step into one case, whatever their messages. At most 200 characters. */
  fingerprint?: string;
  /** The error that caused this one. */
  cause?: unknown;
}

/**
 * A failure of an attempt with details. The retry policy of the step applies. Any other error that
 * a handler throws is retried, too.
 */
export class StepError extends Error {
  override name = "StepError";
  readonly type: string | undefined;
  readonly context: unknown;
  readonly fingerprint: string | undefined;
  /** False prevents retries. */
  readonly retryable: boolean = true;
  /** Minimum delay before the next attempt, in milliseconds. */
  readonly retryAfterMs: number | undefined = undefined;

  constructor(message: string, options: FailureOptions = {}) {
    super(message, options);
    this.type = options.type;
    this.context = options.context;
    this.fingerprint = options.fingerprint;
  }
}

/** A failure that no retry fixes: the step fails at once and an investigation opens. */
export class Permanent extends StepError {
  override name = "Permanent";
  override readonly retryable = false;
}

/** A failure whose next attempt starts after ms milliseconds at the earliest. */
export class RetryAfter extends StepError {
  override name = "RetryAfter";
  override readonly retryAfterMs: number;

  constructor(ms: number, message: string, options: FailureOptions = {}) {
    super(message, options);
    if (!Number.isFinite(ms)) throw new TypeError(`invalid delay ${ms}: must be a number of milliseconds`);
    this.retryAfterMs = Math.max(0, Math.round(ms));
  }
}

/** Why ctx.signal of a handler is aborted: the lease is lost, and the outcome no longer counts. */
export class LeaseLost extends Error {
  override name = "LeaseLost";
}

/** Why ctx.signal of a handler is aborted: the worker shuts down and releases the step. */
export class Interrupted extends Error {
  override name = "Interrupted";
}

/** Why ctx.signal of a handler is aborted: the step has reached its timeout. */
export class StepTimeout extends Error {
  override name = "StepTimeout";
}

/** Codes of {@link TaskerError}. A server of a later version may use others. */
export type ErrorCode =
  | "INVALID" | "UNAUTHORIZED" | "FORBIDDEN" | "NOT_FOUND" | "NOT_SUPPORTED" | "CONFLICT"
  | "STALE_LEASE" | "TOO_LARGE" | "INTERNAL" | "UNAVAILABLE" | (string & {});

/**
 * A request that failed. The code UNAVAILABLE also stands for a server that cannot be reached and
 * for a response that is not from the API, such as the page of a proxy.
 */
export class TaskerError extends Error {
  override name = "TaskerError";
  /** Stable code in UPPER_SNAKE. */
  readonly code: ErrorCode;
  /** HTTP status, or 0 if there was no response. */
  readonly status: number;
  /** Details of the server, such as a list of {path, message}. */
  readonly details: unknown;
  /** Delay that the server requested, in milliseconds; 0 if there was none. */
  readonly retryAfterMs: number;
  /** True if the server certainly did not receive the request. */
  readonly unsent: boolean;

  constructor(
    code: ErrorCode,
    message: string,
    more: { status?: number; details?: unknown; retryAfterMs?: number; unsent?: boolean; cause?: unknown } = {},
  ) {
    super(message, more);
    this.code = code;
    this.status = more.status ?? 0;
    this.details = more.details;
    this.retryAfterMs = more.retryAfterMs ?? 0;
    this.unsent = more.unsent ?? false;
  }
}

/** codeOf returns the code of a TaskerError, or undefined. */
export function codeOf(error: unknown): ErrorCode | undefined {
  return error instanceof TaskerError ? error.code : undefined;
}

/** messageOf returns the text of anything thrown, even if its methods throw. */
export function messageOf(error: unknown): string {
  try {
    return error instanceof Error ? String(error.message) : String(error);
  } catch {
    return "an error whose message cannot be read";
  }
}
