import { hostname } from "node:os";
import { Attempt } from "./attempt.js";
import { codeOf, Interrupted, LeaseLost, messageOf, StepTimeout, TaskerError, type ErrorCode } from "./errors.js";
import { execute, type Registered } from "./handler.js";
import { Heartbeat, type FromHeartbeat } from "./heartbeat.js";
import { Transport } from "./http.js";
import { jsonLogger, type Logger } from "./log.js";
import {
  batches, isAuthError, isUnknown, leaseOf, maxBatch, protocolVersion, WorkerApi,
  type ClaimedStep, type Lease, type Registration,
} from "./protocol.js";
import { Reporter } from "./report.js";
import { Backoff, firstRest, now, Signal, sleep, Window } from "./wait.js";
import type { WorkerOptions } from "./worker.js";

const defaultConcurrency = 10;
const defaultIntervalMs = 10_000;
const defaultLeaseMs = 30_000;
const pollMs = 20_000;
/** Minimum heartbeat interval for which claims count as heartbeats. */
const leastClaimMs = 2_000;
const longestTimer = 2 ** 31 - 1;

/** Errors of a registration that no retry fixes. */
const finalLater: ErrorCode[] = ["INVALID", "NOT_SUPPORTED", "TOO_LARGE"];
/** The same when the worker starts: later, a rejected key may be in rotation. */
const finalAtStart: ErrorCode[] = [...finalLater, "UNAUTHORIZED", "FORBIDDEN", "NOT_FOUND"];

/**
 * Run holds the attempts of one run of a worker and claims steps. An attempt occupies a slot from
 * its claim until its report is answered, so that a worker claims nothing from a server that does
 * not accept reports.
 */
export class Run {
  readonly name: string;
  readonly handlers = new Map<string, Registered>();
  readonly attempts = new Map<string, Attempt>();
  readonly log: Logger;
  readonly api: WorkerApi;
  readonly reporter = new Reporter(this);
  heartbeat!: Heartbeat;
  /** Aborts when the worker must drain. */
  readonly stopping = new AbortController();
  /** The server already knows that the worker drains. */
  announced = false;
  /** Why the run ended, unless it was asked to. */
  failure: Error | undefined;
  draining = false;
  /** Handlers that have not returned. */
  running = 0;
  /** Slots of pending claims. */
  reserved = 0;
  /** Wakes when a slot is free. */
  readonly slot = new Signal();
  /** Wakes when a handler has returned. */
  readonly handled = new Signal();
  /** Resolves when the pending releases are done. */
  releases = Promise.resolve();
  private unstarted: Lease[] = [];
  /** Latest attempt per step. */
  private readonly newest = new Map<string, Attempt>();
  private readonly size = new Window(maxBatch);
  private registration: Registration | undefined;
  private registering: Promise<void> | undefined;
  private keyRefusedAt = 0;

  /** It throws INVALID if an option is malformed. */
  constructor(readonly options: WorkerOptions) {
    this.name = options.name || hostname() || "worker";
    this.log = options.logger ?? jsonLogger;
    this.api = new WorkerApi(new Transport(options));
  }

  /** free returns how many more steps may be claimed. */
  get free(): number {
    return (this.options.concurrency ?? defaultConcurrency) - this.attempts.size - this.reserved;
  }

  /** start registers the worker and starts its heartbeats. It rejects if the server rejects the worker. */
  async start(): Promise<void> {
    const { url, key, keyFile, tls } = this.options;
    // The thread starts first, because no step may be claimed before its lease can be extended.
    this.heartbeat = new Heartbeat({ url, key, keyFile, tls }, (message) => this.heard(message), (e) => this.end(e));
    await this.heartbeat.ready;
    await this.register(finalAtStart, this.stopping.signal);
    this.heartbeat.send({ registration: this.registration! });
  }

  /**
   * end drains the worker: with an error if the server rejects the worker, without one if an
   * operator drains it.
   */
  end(error?: Error): void {
    this.failure ??= error;
    this.announced = true;
    this.stopping.abort();
  }

  private async register(final: ErrorCode[], signal?: AbortSignal): Promise<void> {
    const { namespaces, version, concurrency = defaultConcurrency } = this.options;
    const spec = {
      name: this.name, namespaces, handlers: [...this.handlers.keys()], version, max_concurrency: concurrency,
      protocol: protocolVersion,
    };
    const rests = new Backoff();
    for (;;) {
      const sent = now();
      try {
        const r = await this.api.register(spec, signal);
        if (r.protocol > protocolVersion) {
          throw new TaskerError("NOT_SUPPORTED", `the server speaks version ${r.protocol} of the worker protocol, ` +
            `this SDK version ${protocolVersion}: update @tasker/sdk`);
        }
        const { heartbeat_interval_ms: interval, lease_ms: lease } = r;
        this.registration = {
          ...r, heartbeat_interval_ms: interval > 0 ? interval : defaultIntervalMs,
          lease_ms: lease > 0 ? lease : defaultLeaseMs,
        };
        this.api.worker = r.worker_uuid;
        this.succeeded(sent);
        this.log.info("worker registered", { worker: r.worker_uuid, handlers: spec.handlers.length });
        return;
      } catch (error) {
        if (!(error instanceof TaskerError) || signal?.aborted) throw error;
        if (final.includes(error.code)) {
          throw new TaskerError(error.code, `register worker ${this.name}: ${error.message}`, error);
        }
        this.warn("could not register the worker, retrying", error);
        if (!(await sleep(rests.after(error), signal))) throw error;
      }
    }
  }

  /**
   * registerAgain registers the worker if the server does not know this id. Leases of the id are
   * lost, as the next heartbeat reports.
   */
  private async registerAgain(id: string): Promise<void> {
    if (this.api.worker !== id) return;
    this.registering ??= (async () => {
      this.log.warn("the server does not know this worker, registering again", { worker: id });
      try {
        await this.register(finalLater);
        this.heartbeat.send({ registration: this.registration!, renew: true });
      } catch (error) {
        this.end(error as Error);
      } finally {
        this.registering = undefined;
      }
    })();
    await this.registering;
  }

  /** failed logs a failed request of a worker and registers it again if the server does not know it. */
  async failed(message: string, error: unknown, worker: string, fields: object): Promise<void> {
    this.warn(message, error, fields);
    if (isUnknown(error, worker)) await this.registerAgain(worker);
  }

  /** warn logs a failed request. Of consecutive rejections of the key it logs only the first. */
  warn(message: string, error: unknown, fields: object = {}): void {
    if (!isAuthError(error)) {
      this.log.warn(message, { ...fields, code: codeOf(error), error: messageOf(error) });
      return;
    }
    if (this.keyRefusedAt === 0) {
      this.log.error("the server rejects the key of this worker; retrying until it is accepted, outcomes are kept",
        { error: messageOf(error) });
    }
    this.keyRefusedAt = now();
  }

  /** succeeded records that the server accepted the key of a request sent at this time. */
  succeeded(sent: number): void {
    if (this.keyRefusedAt === 0 || sent <= this.keyRefusedAt) return;
    this.keyRefusedAt = 0;
    this.log.info("the server accepts the key of this worker again");
  }

  /** claim claims steps whenever slots are free, until the worker drains. A pending claim ends with the signal. */
  async claim(signal: AbortSignal): Promise<void> {
    const rests = new Backoff();
    while (!this.draining) {
      const slots = Math.min(this.free, this.size.size);
      if (slots <= 0) {
        await this.slot.wait();
        continue;
      }
      const error = await this.claimOnce(slots, signal);
      if (error === undefined) rests.reset();
      else if (!(await sleep(rests.after(error), signal))) return;
    }
  }

  private async claimOnce(slots: number, signal: AbortSignal): Promise<unknown> {
    const asked = now();
    const { worker } = this.api;
    const interval = this.registration!.heartbeat_interval_ms;
    const waitMs = interval >= leastClaimMs ? Math.min(pollMs, Math.floor(interval * 0.9)) : pollMs;
    this.reserved += slots;
    try {
      const steps = await this.api.claim(slots, waitMs, signal);
      this.begin(steps, slots, asked);
      this.succeeded(asked);
      this.size.grow();
      if (steps.length === 0 && !this.draining && now() - asked < waitMs / 2) {
        // The worker must drain, which the next heartbeat reports, or the server is shutting down.
        this.heartbeat.send({ renew: true });
        await sleep(firstRest, signal);
      }
      return undefined;
    } catch (error) {
      this.reserved -= slots;
      if (signal.aborted) return error;
      await this.failed("claim failed, retrying", error, worker, { slots });
      if (codeOf(error) === "TOO_LARGE") this.size.shrink(slots);
      return error;
    }
  }

  /**
   * begin runs the handlers of the steps that a request claimed with reserved slots. Their leases
   * may be as old as the request, which was sent at asked.
   */
  begin(steps: ClaimedStep[], slots: number, asked: number): void {
    this.reserved -= slots;
    const started: Attempt[] = [];
    for (const step of steps) {
      if (this.attempts.has(step.lease_token)) continue; // the same response arrived twice
      if (this.draining || !this.supersede(step)) {
        this.release(step);
        continue;
      }
      const attempt = new Attempt(step);
      this.attempts.set(step.lease_token, attempt);
      this.newest.set(step.step_uuid, attempt);
      started.push(attempt);
    }
    // The leases go first: a handler may block this thread.
    const leases = started.map(({ step }) => ({ ...leaseOf(step), expires: step.lease_expires_at, asked }));
    if (leases.length > 0) this.heartbeat.send({ added: leases });
    this.running += started.length;
    for (const attempt of started) void this.handle(attempt);
    this.slot.wake();
  }

  /**
   * supersede aborts an older attempt of a step that is assigned again: its lease is lost, but
   * heartbeats name steps and cannot report that. It returns false if this assignment is the older one.
   */
  private supersede(step: ClaimedStep): boolean {
    const older = this.newest.get(step.step_uuid);
    if (!older) return true;
    if (Date.parse(step.lease_expires_at) < Date.parse(older.step.lease_expires_at)) return false;
    this.heartbeat.remove(older.token);
    this.lose(older);
    return true;
  }

  private async handle(attempt: Attempt): Promise<void> {
    const { step, controller } = attempt;
    const timeout = () => controller.abort(new StepTimeout("the attempt has reached the timeout of the step"));
    const deadline = step.deadline ? setTimeout(timeout, timeLeft(step, this.registration!.lease_ms)) : undefined;
    const outcome = await execute(this.handlers.get(step.handler), step, controller.signal, this.api, this.log);
    clearTimeout(deadline);
    this.running--;
    if (attempt.dropped) {
      this.forget(attempt);
    } else if (controller.signal.reason instanceof Interrupted && !outcome.success) {
      this.forget(attempt);
      this.release(step);
    } else {
      attempt.finish(outcome);
      this.reporter.add(attempt);
    }
    this.handled.wake();
  }

  /** forget removes an attempt and frees its slot. */
  forget(attempt: Attempt): void {
    this.attempts.delete(attempt.token);
    if (this.newest.get(attempt.step.step_uuid) === attempt) this.newest.delete(attempt.step.step_uuid);
    this.heartbeat.remove(attempt.token);
    this.slot.wake();
  }

  /** release releases the lease of a step that was not executed. */
  release(step: ClaimedStep): void {
    this.unstarted.push(leaseOf(step));
    this.releases = this.releases.then(() => this.releaseAll());
  }

  /** releaseAll releases the leases of steps that were not executed. Those that fail are kept for the next call. */
  async releaseAll(): Promise<void> {
    const leases = this.unstarted;
    this.unstarted = [];
    for (const batch of batches(leases)) {
      try {
        const done = await this.api.release(batch);
        this.unstarted.push(...batch.filter((lease) => !done.has(lease.step_uuid)));
      } catch (error) {
        this.warn("could not release steps", error, { steps: batch.length });
        this.unstarted.push(...batch);
      }
    }
  }

  private heard({ beat, lapsed = [], failed }: FromHeartbeat): void {
    if (beat) {
      if (beat.drain && !this.draining) this.end();
      for (const token of beat.lost) this.lose(this.attempts.get(token));
      this.succeeded(beat.sent);
    }
    for (const attempt of lapsed.map((token) => this.attempts.get(token))) {
      if (!attempt?.outcome) this.lose(attempt);
    }
    if (failed) {
      const error = new TaskerError(failed.code ?? "INTERNAL", failed.message);
      void this.failed("heartbeat failed, retrying", error, failed.worker, { leases: failed.leases });
    }
  }

  /**
   * lose aborts a handler whose lease is lost. An existing outcome is still sent: the server may not
   * have assigned the step again, and its response decides.
   */
  private lose(attempt: Attempt | undefined): void {
    if (!attempt || attempt.dropped) return;
    if (attempt.outcome) {
      attempt.lost = true;
      return;
    }
    this.drop(attempt);
    attempt.controller.abort(new LeaseLost("the lease of this attempt is lost: its outcome no longer counts"));
    this.log.warn("lease lost, step stopped", { ...attempt.ids, attempt: attempt.step.attempt });
  }

  /** drop ignores the outcome of an attempt whose handler still runs. */
  drop(attempt: Attempt): void {
    attempt.dropped = true;
    this.heartbeat.remove(attempt.token);
  }
}

/**
 * timeLeft returns how long an attempt may run. Its deadline is by the clock of the database, so it
 * is measured from the start of the lease, which is now. A deadline within the first lease shortens
 * that lease, which hides its start: then the local clock is used, if it is plausible.
 */
function timeLeft(step: ClaimedStep, leaseMs: number): number {
  const deadline = Date.parse(step.deadline!);
  const expires = Date.parse(step.lease_expires_at);
  const most = deadline - expires + leaseMs;
  const ours = deadline - Date.now();
  return Math.min(deadline <= expires && ours > 0 && ours < most ? ours : most, longestTimer);
}
