import { Attempt } from "./attempt.js";
import type { Backend } from "./context.js";
import { codeOf, Interrupted, LeaseLost, messageOf, StepTimeout, TaskerError, type ErrorCode } from "./errors.js";
import { execute, type Registered } from "./handler.js";
import { Heartbeat, type FromHeartbeat } from "./heartbeat.js";
import type { ConnectionOptions } from "./http.js";
import type { Logger } from "./log.js";
import {
  isAuthError, isUnknown, leaseOf, maxBatch, protocolVersion, WorkerApi,
  type ClaimedStep, type Lease, type Registration,
} from "./protocol.js";
import { Reporter } from "./report.js";
import { Backoff, firstRest, now, Signal, sleep, Window } from "./wait.js";

/** What a run needs of its worker. */
export interface RunOptions {
  connection: ConnectionOptions;
  spec: {
    name: string; namespaces: string[]; handlers: string[]; version: string | undefined; max_concurrency: number;
  };
  drainTimeoutMs: number;
  log: Logger;
  handlers: ReadonlyMap<string, Registered>;
}

const defaultIntervalMs = 10_000;
const defaultLeaseMs = 30_000;
const pollMs = 20_000;
/** Minimum heartbeat interval for which claims count as heartbeats. */
const leastClaimMs = 2_000;

/** Errors of a registration that no retry fixes, when the worker starts. */
const finalAtStart: ErrorCode[] = ["INVALID", "NOT_SUPPORTED", "TOO_LARGE", "UNAUTHORIZED", "FORBIDDEN", "NOT_FOUND"];
/** The same, later: a rejected key may be in rotation. */
const finalLater: ErrorCode[] = ["INVALID", "NOT_SUPPORTED", "TOO_LARGE"];

/**
 * Run holds the attempts of one run of a worker and claims steps. An attempt occupies a slot from
 * its claim until its report is answered, so that a worker claims nothing from a server that does
 * not accept reports.
 */
export class Run implements Backend {
  readonly attempts = new Map<string, Attempt>();
  /** Latest attempt per step. */
  readonly newest = new Map<string, Attempt>();
  readonly log: Logger;
  readonly reporter: Reporter;
  readonly unstarted: Lease[] = [];
  /** Wakes when a lease must be released. */
  readonly back = new Signal();
  /** Wakes when a handler has returned. */
  readonly handled = new Signal();
  running = 0;
  draining = false;
  /** Slots of pending claims. */
  reserved = 0;
  heartbeat: Heartbeat | undefined;
  private registration: Registration | undefined;
  private registering: Promise<void> | undefined;
  private keyRefusedAt = 0;
  private readonly slot = new Signal();
  private readonly size = new Window(maxBatch);

  /**
   * @param end is called once if the run must end: with an error if the server rejects the worker,
   * without one if an operator drains it
   */
  constructor(readonly options: RunOptions, readonly api: WorkerApi, private readonly end: (error?: Error) => void) {
    this.log = options.log;
    this.reporter = new Reporter(this);
  }

  get worker(): string {
    return this.registration?.worker_uuid ?? "";
  }

  /** free returns how many more steps may be claimed. */
  get free(): number {
    return this.options.spec.max_concurrency - this.attempts.size - this.reserved;
  }

  /** start registers the worker and starts its heartbeats. It rejects if the server rejects the worker. */
  async start(signal: AbortSignal): Promise<void> {
    // The thread starts first, because no step may be claimed before its lease can be extended.
    this.heartbeat = new Heartbeat(this.options.connection, (message) => this.heard(message), this.end);
    try {
      await this.heartbeat.ready;
      await this.register(finalAtStart, signal);
      this.heartbeat.registered(this.registration!);
    } catch (error) {
      await this.heartbeat.stop();
      throw error;
    }
  }

  private async register(final: ErrorCode[], signal?: AbortSignal): Promise<void> {
    const rests = new Backoff();
    for (;;) {
      const sent = now();
      try {
        const r = await this.api.register({ ...this.options.spec, protocol: protocolVersion }, signal);
        const version = r.protocol ?? protocolVersion;
        if (version > protocolVersion) {
          throw new TaskerError("NOT_SUPPORTED", `the server speaks version ${version} of the worker protocol, ` +
            `this SDK version ${protocolVersion}: update @tasker/sdk`);
        }
        this.registration = {
          ...r, heartbeat_interval_ms: r.heartbeat_interval_ms > 0 ? r.heartbeat_interval_ms : defaultIntervalMs,
          lease_ms: r.lease_ms > 0 ? r.lease_ms : defaultLeaseMs,
        };
        this.succeeded(sent);
        this.log.info("worker registered", { worker: r.worker_uuid, handlers: this.options.spec.handlers.length });
        return;
      } catch (error) {
        const code = codeOf(error);
        if (code === undefined || final.includes(code) || signal?.aborted) throw error;
        this.warn("could not register the worker, retrying", error);
        if (!(await sleep(rests.after(error), signal))) throw error;
      }
    }
  }

  /**
   * registerAgain registers the worker if the server does not know this id. Leases of the id are
   * lost, as the next heartbeat reports.
   */
  registerAgain(id: string): Promise<void> {
    if (this.worker !== id) return Promise.resolve();
    this.registering ??= (async () => {
      this.log.warn("the server does not know this worker, registering again", { worker: id });
      try {
        await this.register(finalLater);
        this.heartbeat?.registered(this.registration!);
        this.heartbeat?.renew();
      } catch (error) {
        this.end(new Error(`register worker ${this.options.spec.name} again: ${messageOf(error)}`, { cause: error }));
      } finally {
        this.registering = undefined;
      }
    })();
    return this.registering;
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
    const { worker_uuid: worker, heartbeat_interval_ms: interval } = this.registration!;
    const waitMs = interval >= leastClaimMs ? Math.min(pollMs, Math.floor(interval * 0.9)) : pollMs;
    this.reserved += slots;
    try {
      const steps = await this.api.claim(worker, slots, waitMs, signal);
      this.begin(steps, slots, asked);
      this.succeeded(asked);
      this.size.grow();
      if (steps.length === 0 && !this.draining && now() - asked < waitMs / 2) {
        // The worker must drain, which the next heartbeat reports, or the server is shutting down.
        this.heartbeat?.renew();
        await sleep(firstRest, signal);
      }
      return undefined;
    } catch (error) {
      this.reserved -= slots;
      if (signal.aborted) return error;
      this.warn("claim failed, retrying", error, { slots });
      if (isUnknown(error, worker)) await this.registerAgain(worker);
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
    this.heartbeat?.add(started.map((a) => a.step), asked);
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
    this.heartbeat?.remove(older.token);
    this.lose(older);
    return true;
  }

  private async handle(attempt: Attempt): Promise<void> {
    const { step, controller } = attempt;
    if (step.deadline) {
      const left = timeLeft(step, this.registration!.lease_ms);
      attempt.deadline = setTimeout(() => controller.abort(new StepTimeout()), Math.min(left, 2 ** 31 - 1));
    }
    const outcome = await execute(this.options.handlers.get(step.handler), step, controller.signal, this, this.log);
    clearTimeout(attempt.deadline);
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

  document(path: string, signal: AbortSignal): Promise<unknown> {
    return this.api.document(path, signal);
  }

  checkpoint(step: ClaimedStep, value: string, signal: AbortSignal): Promise<void> {
    return this.api.checkpoint(this.worker, step, value, signal);
  }

  /** forget removes an attempt and frees its slot. */
  forget(attempt: Attempt): void {
    this.attempts.delete(attempt.token);
    if (this.newest.get(attempt.step.step_uuid) === attempt) this.newest.delete(attempt.step.step_uuid);
    this.heartbeat?.remove(attempt.token);
    this.slot.wake();
  }

  /** release queues the lease of a step that was not executed. */
  release(step: ClaimedStep): void {
    this.unstarted.push(leaseOf(step));
    this.back.wake();
  }

  /** wakeClaim ends the wait for a free slot, when the worker drains. */
  wakeClaim(): void {
    this.slot.wake();
  }

  private heard(message: FromHeartbeat): void {
    if (message.beat) {
      if (message.beat.drain && !this.draining) this.end();
      for (const token of message.beat.lost) this.loseToken(token, true);
      this.succeeded(message.beat.sent);
    }
    for (const token of message.lapsed ?? []) this.loseToken(token, false);
    if (message.failed) {
      const { worker, unknown, code, message: text, leases } = message.failed;
      this.warn("heartbeat failed, retrying", new TaskerError(code ?? "INTERNAL", text), { leases });
      if (unknown) void this.registerAgain(worker);
    }
  }

  /** loseToken handles a lease that the server reported as lost, or that expired without an answer. */
  private loseToken(token: string, reported: boolean): void {
    const attempt = this.attempts.get(token);
    if (attempt && (reported || !attempt.finished)) this.lose(attempt);
  }

  /**
   * lose aborts a handler whose lease is lost. An existing outcome is still sent: the server may not
   * have assigned the step again, and its response decides.
   */
  private lose(attempt: Attempt): void {
    if (attempt.finished) {
      attempt.lost = true;
      return;
    }
    if (attempt.dropped) return;
    attempt.dropped = true;
    this.heartbeat?.remove(attempt.token);
    attempt.controller.abort(new LeaseLost());
    this.log.warn("lease lost, step stopped", { ...attempt.ids, attempt: attempt.step.attempt });
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
  return deadline <= expires && ours > 0 && ours < most ? ours : most;
}
