import type { Failure, Outcome } from "./handler.js";
import { leaseOf, type ClaimedStep } from "./protocol.js";
import { Backoff } from "./wait.js";

/** A claimed step whose report the server has not answered yet. It occupies a slot. */
export class Attempt {
  readonly controller = new AbortController();
  deadline: NodeJS.Timeout | undefined;
  /** The lease is lost while the handler runs: the outcome is ignored. */
  dropped = false;
  /** The handler has returned. */
  finished = false;
  /** The outcome as JSON, for a report. */
  report = "";
  /** The lease is lost after the handler has returned. */
  lost = false;
  /** When a lost outcome is dropped; undefined before its first resend. */
  until: number | undefined;
  /** When the outcome is sent again. */
  due = 0;
  readonly rests = new Backoff();
  private outcome: Outcome | undefined;

  constructor(readonly step: ClaimedStep) {}

  /** ids returns the fields of log records. */
  get ids(): { task: string; step: string } {
    return { task: this.step.task_uuid, step: this.step.step_uuid };
  }

  get token(): string {
    return this.step.lease_token;
  }

  finish(outcome: Outcome): void {
    this.finished = true;
    this.outcome = outcome;
    const head = JSON.stringify(leaseOf(this.step)).slice(0, -1);
    const metadata = outcome.metadata === undefined ? "" : `,"metadata":${outcome.metadata}`;
    this.report = outcome.success
      ? `${head},"success":true,"result":${outcome.result}${metadata}}`
      : `${head},"success":false,"error":${JSON.stringify(outcome.failure)}${metadata}}`;
  }

  get succeeded(): boolean {
    return this.outcome?.success === true;
  }

  /** reduce omits the optional fields of the outcome, one per call. It returns false if there are none. */
  reduce(): boolean {
    const outcome = this.outcome!;
    if (outcome.metadata !== undefined) {
      this.finish({ ...outcome, metadata: undefined });
      return true;
    }
    if (outcome.failure?.context === undefined) return false;
    const failure = { ...outcome.failure };
    delete failure.context;
    this.finish({ success: false, failure });
    return true;
  }

  /** fail replaces a result that cannot be stored with a permanent failure. */
  fail(message: string): void {
    const failure: Failure = { message, type: "invalid_result", retryable: false };
    this.finish({ success: false, failure });
  }
}
