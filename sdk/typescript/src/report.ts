import type { Attempt } from "./attempt.js";
import { codeOf, messageOf } from "./errors.js";
import { isAuthError, isRefused, isUnknown, maxBatch, type Receipt } from "./protocol.js";
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
 * The outcomes of a report without a response are sent again apart from new ones, in halves down to
 * single outcomes, because one of them may be the cause. Single outcomes have a queue of their own,
 * with backoff. An outcome is sent until the server answers it or its lease is lost.
 */
export class Reporter {
  private queue: Attempt[] = [];
  private readonly ready = new Signal();
  private readonly most = new Window(maxBatch);
  private readonly halves: Resend;
  private readonly singles: Resend;
  private closing = false;
  /** The last report failed: the next one claims nothing. */
  private troubled = false;

  constructor(private readonly run: Run) {
    this.singles = new Resend((batch) => this.sendAgain(batch));
    this.halves = new Resend((batch) => this.sendAgain(batch));
  }

  /** add queues the outcome of a finished attempt. */
  add(attempt: Attempt): void {
    this.queue.push(attempt);
    this.ready.wake();
  }

  /** start sends outcomes until close is called and all are answered, or the signal aborts. */
  async start(signal: AbortSignal): Promise<void> {
    signal.addEventListener("abort", () => this.wake(), { once: true });
    const singles = this.singles.start(signal);
    const halves = this.halves.start(signal);
    await this.reports(signal);
    this.halves.close();
    await halves;
    this.singles.close();
    await singles;
  }

  /** close ends start once the queued outcomes are answered. */
  close(): void {
    this.closing = true;
    this.wake();
  }

  private wake(): void {
    this.ready.wake();
    this.halves.ready.wake();
    this.singles.ready.wake();
  }

  private async reports(signal: AbortSignal): Promise<void> {
    const rests = new Backoff();
    while (!signal.aborted) {
      const batch = this.take();
      if (batch.length === 0) {
        if (this.closing) return;
        await this.ready.wait();
        continue;
      }
      const error = await this.report(batch, signal);
      if (error === undefined) rests.reset();
      else await sleep(rests.after(error), signal);
    }
  }

  /** take returns the next outcomes that fit into one report. */
  private take(): Attempt[] {
    const n = fitting(this.queue, this.most.size);
    const batch = this.queue.slice(0, n);
    this.queue = n === this.queue.length ? [] : this.queue.slice(n);
    return batch;
  }

  /** report sends new outcomes and claims a step for each, and for each free slot. */
  private async report(batch: Attempt[], signal: AbortSignal): Promise<unknown> {
    const run = this.run;
    const claim = run.draining || this.troubled ? 0 : Math.min(Math.max(run.free + batch.length, 0), maxBatch);
    const began = now();
    run.reserved += claim;
    try {
      const receipt = await this.deliver(batch, claim, signal);
      run.begin(receipt.steps, claim, began);
      this.troubled = false;
      this.most.grow();
      this.settle(batch, receipt);
      if (receipt.steps.length > 0) await this.gather(now() - began);
      return undefined;
    } catch (error) {
      run.reserved -= claim;
      this.troubled = true;
      if (now() - began > slowReport || isRefused(error)) this.most.shrink(batch.length);
      this.split(batch, error);
      return error;
    }
  }

  /** gather waits briefly until more of the claimed steps finish, so that reports are not small. */
  private async gather(took: number): Promise<void> {
    await new Promise(setImmediate);
    const end = now() + Math.min(took / gatherShare, maxGather);
    while (this.run.running > 0 && now() < end) await this.ready.wait(end - now());
  }

  private async deliver(batch: Attempt[], claim: number, signal: AbortSignal, timeoutMs?: number): Promise<Receipt> {
    const run = this.run;
    const worker = run.worker;
    const sent = now();
    try {
      const receipt = await run.api.report(worker, batch.map((a) => a.report), claim, signal, timeoutMs);
      run.succeeded(sent);
      return receipt;
    } catch (error) {
      if (!signal.aborted) run.warn("report failed, retrying", error, { outcomes: batch.length });
      if (isUnknown(error, worker)) await run.registerAgain(worker);
      throw error;
    }
  }

  /** sendAgain sends outcomes of a failed report. It returns the error that delays the next ones. */
  private async sendAgain(batch: Attempt[], signal = this.singles.signal): Promise<unknown> {
    const began = now();
    try {
      const receipt = await this.deliver(batch, 0, signal, batch.length > 1 ? slowReport : undefined);
      this.settle(batch, receipt);
      return undefined;
    } catch (error) {
      if (batch.length > 1) this.split(batch, error);
      else this.failedAlone(batch[0]!, error, now() - began);
      return error;
    }
  }

  /** split queues the outcomes of a failed report in halves, unless their content cannot be the cause. */
  private split(batch: Attempt[], error: unknown): void {
    const unsent = (error as { unsent?: boolean }).unsent === true;
    const innocent = unsent || isAuthError(error) || isUnknown(error, this.run.worker);
    for (const attempt of batch) attempt.due = now() + Math.min(retryAfterOf(error), longestRest);
    const half = innocent ? batch.length : Math.ceil(batch.length / 2);
    this.resend(batch.slice(0, half));
    this.resend(batch.slice(half));
  }

  /**
   * failedAlone queues an outcome that failed when it was sent alone. The delay is at least the
   * duration of the request, so that a slow outcome does not occupy the server.
   */
  private failedAlone(attempt: Attempt, error: unknown, took: number): void {
    if (codeOf(error) === "TOO_LARGE" && attempt.succeeded) {
      attempt.fail(`the report of the result is too large: ${messageOf(error)}`);
    } else if (isRefused(error)) {
      this.complain(attempt, "the server rejected a report as invalid; it will be sent again", error);
    }
    attempt.due = now() + Math.max(attempt.rests.after(error, isRefused(error) ? longestRest : longRest), took);
    this.resend([attempt]);
  }

  private resend(batch: Attempt[]): void {
    const kept = batch.filter((attempt) => !this.expired(attempt));
    if (kept.length > 0) (kept.length > 1 ? this.halves : this.singles).add(kept);
  }

  /** expired drops an outcome whose lease has been lost for a while. */
  private expired(attempt: Attempt): boolean {
    if (!attempt.lost) return false;
    attempt.until ??= now() + lostTimeout;
    if (now() < attempt.until) return false;
    this.complain(attempt, "dropped an outcome: its lease is lost and its report was not answered");
    this.run.forget(attempt);
    return true;
  }

  /** settle ends the attempts that the response names and queues the others again. */
  private settle(batch: Attempt[], receipt: Receipt): void {
    const accepted = new Set(receipt.accepted);
    const rejected = new Map<string, Receipt["rejected"][number]>();
    for (const x of receipt.rejected) {
      // A response names steps: of two attempts of one step, the safer reaction counts for both.
      const before = rejected.get(x.step_uuid);
      if (!before || order.indexOf(reaction(x)) > order.indexOf(reaction(before))) rejected.set(x.step_uuid, x);
    }
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
        attempt.due = now() + attempt.rests.step(react === "revise" ? longestRest : longRest);
      }
      this.resend([attempt]);
    }
  }

  private complain(attempt: Attempt, message: string, error?: unknown): void {
    const cause = error === undefined ? {} : { code: codeOf(error), error: messageOf(error) };
    this.run.log.error(message, { ...attempt.ids, ...cause });
  }
}

const order: Reaction[] = ["drop", "revise", "repeat"];

function reaction(x: { code: string; message: string }): Reaction {
  switch (x.code) {
    case "UNAVAILABLE":
    case "INTERNAL":
      return "repeat";
    case "INVALID":
    case "TOO_LARGE":
      return x.message.includes(settled) ? "drop" : "revise";
    default:
      return "drop";
  }
}

/**
 * revise changes an outcome that the server rejects as malformed: first it omits optional fields. A
 * result that cannot be stored becomes a permanent failure. It returns false if the outcome is
 * unchanged, because the server may be of a version that does not support a field yet.
 */
function revise(attempt: Attempt, message: string): boolean {
  if (attempt.reduce()) return true;
  if (!attempt.succeeded || !aboutResult.test(message)) return false;
  attempt.fail(`the server rejected the result: ${message}`);
  return true;
}

/** fitting returns how many of the first outcomes fit into one report, at most most. */
function fitting(list: Attempt[], most: number): number {
  let size = 0;
  for (const [i, attempt] of list.entries()) {
    size += attempt.report.length;
    if (i === most || (i > 0 && size > maxReport)) return i;
  }
  return list.length;
}

/** Resend is a queue of batches that are sent again, each when its outcomes are due. */
class Resend {
  readonly ready = new Signal();
  signal: AbortSignal = new AbortController().signal;
  private batches: Attempt[][] = [];
  private closing = false;

  constructor(private readonly send: (batch: Attempt[]) => Promise<unknown>) {}

  add(batch: Attempt[]): void {
    this.batches.push(batch);
    this.ready.wake();
  }

  close(): void {
    this.closing = true;
    this.ready.wake();
  }

  async start(signal: AbortSignal): Promise<void> {
    this.signal = signal;
    const rests = new Backoff();
    while (!signal.aborted) {
      const at = now();
      const i = this.batches.findIndex((batch) => batch[0]!.due <= at);
      if (i >= 0) {
        const [batch] = this.batches.splice(i, 1);
        const error = await this.send(batch!);
        if (error === undefined) rests.reset();
        else await sleep(rests.after(error), signal);
        continue;
      }
      if (this.closing && this.batches.length === 0) return;
      await this.ready.wait(this.batches.length > 0 ? Math.min(...this.batches.map((b) => b[0]!.due - at)) : undefined);
    }
  }
}
