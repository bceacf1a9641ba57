import type { Outcome } from "./handler.js";
import { leaseOf, type ClaimedStep } from "./protocol.js";
import { Backoff } from "./wait.js";

/** A claimed step whose report the server has not answered yet. It occupies a slot. */
export class Attempt {
  readonly controller = new AbortController();
  /** The lease is lost while the handler runs: the outcome is ignored. */
  dropped = false;
  /** Undefined while the handler runs. */
  outcome: Outcome | undefined;
  /** The outcome as JSON, for a report. */
  report = "";
  /** The lease is lost after the handler has returned. */
  lost = false;
  /** When a lost outcome is dropped; undefined before its first resend. */
  until: number | undefined;
  /** When the outcome is sent again. */
  due = 0;
  readonly rests = new Backoff();

  constructor(readonly step: ClaimedStep) {}

  /** ids returns the fields of log records. */
  get ids(): { task: string; step: string } {
    return { task: this.step.task_uuid, step: this.step.step_uuid };
  }

  get token(): string {
    return this.step.lease_token;
  }

  finish(outcome: Outcome): void {
    this.outcome = outcome;
    this.report = JSON.stringify({ ...leaseOf(this.step), ...outcome });
  }

  /** reduce omits the optional fields of the outcome, one per call. It returns false if there are none. */
  reduce(): boolean {
    const { metadata, ...outcome } = this.outcome!;
    if (metadata === undefined) {
      if (outcome.error?.context === undefined) return false;
      outcome.error = { ...outcome.error, context: undefined };
    }
    this.finish(outcome);
    return true;
  }

  /** fail replaces a result that cannot be stored with a permanent failure. */
  fail(message: string): void {
    this.finish({ success: false, error: { message, type: "invalid_result", retryable: false } });
  }
}
