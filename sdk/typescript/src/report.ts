import type { Attempt } from "./attempt.js";
import { codeOf, messageOf, TaskerError } from "./errors.js";
import { isAuthError, isRefused, maxBatch, reportMs, type Limits, type Receipt } from "./protocol.js";
import type { Run } from "./run.js";
import { Backoff, longestRest, longRest, now, retryAfterOf, Signal, sleep, Window } from "./wait.js";

/** Maximum size of one report in characters, unless a single outcome is larger. */
const maxReport = 1 << 20;
/** Slower reports count as too large, in milliseconds. */
const slowReport = 10_000;
/** How long an outcome with a lost lease is sent again: the lost response may have accepted it. */
const lostTimeout = 60_000;
/** A report waits for more outcomes for a share of the duration of the last one, in milliseconds. */
const gatherShare = 8;
const maxGather = 10;

/** Occurs in a rejection if the server has recorded the attempt as failed. */
const settled = "the attempt was failed";
/** Matches rejections of the result. */
const aboutResult = /^(results\[\d+\][.:] ?)?result\b/;

type Reaction = "drop" | "revise" | "repeat";

/**
 * Reporter sends outcomes and claims steps with the same request. One report is in flight at a
 * time, and the next one contains all outcomes that finish meanwhile.
 *
 * The outcomes of a report without a response are sent again apart from new ones, in batches that
 * are halved after each failure, because one of them may be the cause. Single outcomes have a queue
 * of their own, with backoff. An outcome is sent until the server answers it or its lease is lost.
 */
export class Reporter {
  private readonly fresh: Queue = new Queue(maxBatch, (batch, signal) => this.report(batch, signal));
  private readonly unsure: Queue = new Queue(maxBatch, (batch, signal) => this.sendAgain(batch, signal));
  private readonly singles: Queue = new Queue(1, (batch, signal) => this.sendAgain(batch, signal));
  /** The last report failed: the next one claims nothing. */
  private troubled = false;

  constructor(private readonly run: Run) {}

  /** add queues the outcome of a finished attempt. */
  add(attempt: Attempt): void {
    this.fresh.add([attempt]);
  }

  /** start sends outcomes until close is called and all are answered, or the signal aborts. */
  async start(signal: AbortSignal): Promise<void> {
    const unsure = this.unsure.start(signal);
    const singles = this.singles.start(signal);
    await this.fresh.start(signal);
    this.unsure.close();
    await unsure;
    this.singles.close();
    await singles;
  }

  /** close ends start once the queued outcomes are answered. */
  close(): void {
    this.fresh.close();
  }

  /** report sends new outcomes and claims a step for each, and for each free slot. */
  private async report(batch: Attempt[], signal: AbortSignal): Promise<unknown> {
    const run = this.run;
    const claim = run.draining || this.troubled ? 0 : Math.min(Math.max(run.free + batch.length, 0), maxBatch);
    const began = now();
    run.reserved += claim;
    try {
      const receipt = await this.deliver(batch, claim, { timeoutMs: reportMs, signal });
      run.begin(receipt.steps, claim, began);
      this.troubled = false;
      this.settle(batch, receipt);
      if (receipt.steps.length > 0) await this.gather(now() - began);
      return undefined;
    } catch (error) {
      run.reserved -= claim;
      this.troubled = true;
      if (now() - began > slowReport || isRefused(error)) this.fresh.window.shrink(batch.length);
      this.divide(batch, error);
      return error;
    }
  }

  /** gather waits briefly until more of the claimed steps finish, so that reports are not small. */
  private async gather(took: number): Promise<void> {
    await new Promise(setImmediate);
    const end = now() + Math.min(took / gatherShare, maxGather);
    while (this.run.running > 0 && now() < end) await this.fresh.ready.wait(end - now());
  }

  private async deliver(batch: Attempt[], claim: number, limits: Limits): Promise<Receipt> {
    const run = this.run;
    const { worker } = run.api;
    const sent = now();
    try {
      const receipt = await run.api.report(batch.map((a) => a.report), claim, limits);
      run.succeeded(sent);
      return receipt;
    } catch (error) {
      if (!limits.signal?.aborted) {
        await run.failed("report failed, retrying", error, worker, { outcomes: batch.length });
      }
      throw error;
    }
  }

  /** sendAgain sends outcomes of a failed report. It returns the error that delays the next ones. */
  private async sendAgain(batch: Attempt[], signal: AbortSignal): Promise<unknown> {
    const began = now();
    try {
      const receipt = await this.deliver(batch, 0, { timeoutMs: batch.length > 1 ? slowReport : reportMs, signal });
      this.settle(batch, receipt);
      return undefined;
    } catch (error) {
      if (batch.length > 1) this.divide(batch, error);
      else this.failedAlone(batch[0]!, error, now() - began);
      return error;
    }
  }

  /** divide queues the outcomes of a failed report for smaller ones, unless their content cannot be the cause. */
  private divide(batch: Attempt[], error: unknown): void {
    const unsent = error instanceof TaskerError && error.unsent;
    const innocent = unsent || isAuthError(error) || codeOf(error) === "NOT_FOUND";
    if (!innocent) this.unsure.window.shrink(batch.length);
    for (const attempt of batch) attempt.due = now() + retryAfterOf(error);
    this.resend(batch);
  }

  /**
   * failedAlone queues an outcome that failed when it was sent alone. The delay is at least the
   * duration of the request, so that a slow outcome does not occupy the server.
   */
  private failedAlone(attempt: Attempt, error: unknown, took: number): void {
    if (codeOf(error) === "TOO_LARGE" && attempt.outcome?.success) {
      attempt.fail(`the report of the result is too large: ${messageOf(error)}`);
    } else if (isRefused(error)) {
      this.run.log.error("the server rejected a report as invalid; it will be sent again",
        { ...attempt.ids, code: codeOf(error), error: messageOf(error) });
    }
    attempt.due = now() + Math.max(attempt.rests.after(error, isRefused(error) ? longestRest : longRest), took);
    this.resend([attempt]);
  }

  private resend(batch: Attempt[]): void {
    const kept = batch.filter((attempt) => !this.expired(attempt));
    (batch.length > 1 ? this.unsure : this.singles).add(kept);
  }

  /** expired drops an outcome whose lease has been lost for a while. */
  private expired(attempt: Attempt): boolean {
    if (!attempt.lost) return false;
    attempt.until ??= now() + lostTimeout;
    if (now() < attempt.until) return false;
    this.run.log.error("dropped an outcome: its lease is lost and its report was not answered", attempt.ids);
    this.run.forget(attempt);
    return true;
  }

  /** settle ends the attempts that the response names and queues the others again. */
  private settle(batch: Attempt[], receipt: Receipt): void {
    const accepted = new Set(receipt.accepted);
    // A response names steps: of two attempts of one step, the safer reaction counts for both.
    const safest = receipt.rejected.sort((a, b) => order.indexOf(reaction(a)) - order.indexOf(reaction(b)));
    const rejected = new Map(safest.map((x) => [x.step_uuid, x]));
    for (const attempt of batch) {
      const step = attempt.step.step_uuid;
      const x = rejected.get(step);
      const react = x ? reaction(x) : accepted.has(step) ? "drop" : "repeat";
      if (x && react !== "repeat") {
        this.run.log.warn("outcome rejected", { ...attempt.ids, code: x.code, error: x.message });
      }
      if (react === "drop") {
        this.run.forget(attempt);
        continue;
      }
      if (!x || react === "repeat" || !revise(attempt, x.message)) {
        attempt.due = now() + attempt.rests.after(undefined, react === "revise" ? longestRest : longRest);
      }
      this.resend([attempt]);
    }
  }
}

const order: Reaction[] = ["drop", "revise", "repeat"];

function reaction({ code, message }: { code: string; message: string }): Reaction {
  if (code === "UNAVAILABLE" || code === "INTERNAL") return "repeat";
  const malformed = code === "INVALID" || code === "TOO_LARGE";
  return malformed && !message.includes(settled) ? "revise" : "drop";
}

/**
 * revise changes an outcome that the server rejects as malformed: first it omits optional fields. A
 * result that cannot be stored becomes a permanent failure. It returns false if the outcome is
 * unchanged, because the server may be of a version that does not support a field yet.
 */
function revise(attempt: Attempt, message: string): boolean {
  if (attempt.reduce()) return true;
  if (!attempt.outcome?.success || !aboutResult.test(message)) return false;
  attempt.fail(`the server rejected the result: ${message}`);
  return true;
}

/** Queue sends outcomes in batches, each outcome when it is due. */
class Queue {
  /** Wakes when outcomes are added. */
  readonly ready = new Signal();
  readonly window: Window;
  private list: Attempt[] = [];
  private closing = false;

  /** @param send returns the error that delays the next batch */
  constructor(most: number, private readonly send: (batch: Attempt[], signal: AbortSignal) => Promise<unknown>) {
    this.window = new Window(most);
  }

  add(attempts: Attempt[]): void {
    this.list.push(...attempts);
    this.ready.wake();
  }

  /** close ends start once the queue is empty. */
  close(): void {
    this.closing = true;
    this.ready.wake();
  }

  async start(signal: AbortSignal): Promise<void> {
    signal.addEventListener("abort", () => this.ready.wake(), { once: true });
    const rests = new Backoff();
    while (!signal.aborted) {
      const batch = this.take();
      if (batch.length > 0) {
        const error = await this.send(batch, signal);
        if (error !== undefined) {
          await sleep(rests.after(error), signal);
          continue;
        }
        rests.reset();
        this.window.grow();
      } else if (this.list.length > 0) {
        await this.ready.wait(Math.min(...this.list.map((attempt) => attempt.due)) - now());
      } else if (this.closing) {
        return;
      } else {
        await this.ready.wait();
      }
    }
  }

  /** take removes the first outcomes that are due and fit into one report. */
  private take(): Attempt[] {
    const at = now();
    const batch: Attempt[] = [];
    let size = 0;
    for (const attempt of this.list) {
      if (attempt.due > at) continue;
      size += attempt.report.length;
      if (batch.length === this.window.size || (batch.length > 0 && size > maxReport)) break;
      batch.push(attempt);
    }
    const taken = new Set(batch);
    this.list = this.list.filter((attempt) => !taken.has(attempt));
    return batch;
  }
}
