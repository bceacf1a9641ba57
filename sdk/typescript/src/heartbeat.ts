import { Worker as Thread } from "node:worker_threads";
import type { ErrorCode } from "./errors.js";
import type { ConnectionOptions } from "./http.js";
import { leaseOf, type ClaimedStep, type Lease, type Registration } from "./protocol.js";

/** Message to the heartbeat thread. Tokens in removed are deleted before added is applied. */
export interface ToHeartbeat {
  removed?: string[];
  /** New leases with the local time at which their claim was sent. */
  added?: (Lease & { expires: string; asked: number })[];
  registration?: Registration;
  /** Send a heartbeat now. */
  renew?: boolean;
}

/** Message from the heartbeat thread. Leases are named by their tokens. */
export interface FromHeartbeat {
  /** The thread accepts leases. */
  ready?: true;
  beat?: { drain: boolean; lost: string[]; sent: number };
  lapsed?: string[];
  failed?: { worker: string; unknown: boolean; code: ErrorCode | undefined; message: string; leases: number };
}

const flushMs = 50;

/** Heartbeat controls the heartbeat thread. */
export class Heartbeat {
  /** Resolves when the thread accepts leases. It starts to send heartbeats after registered. */
  readonly ready: Promise<void>;
  private readonly thread: Thread;
  private removed: string[] = [];
  private timer: NodeJS.Timeout | undefined;
  private stopped = false;

  /**
   * @param receive is called with each message of the thread
   * @param broken is called if the thread ends before stop
   */
  constructor(
    connection: ConnectionOptions, receive: (message: FromHeartbeat) => void, broken: (error: Error) => void,
  ) {
    const program = new URL("./heartbeat-thread.js", import.meta.url);
    this.thread = new Thread(program, { workerData: connection, name: "tasker-heartbeat" });
    this.ready = new Promise((resolve) => {
      this.thread.on("message", (message: FromHeartbeat) => (message.ready ? resolve() : receive(message)));
      this.thread.on("exit", () => resolve());
    });
    this.thread.on("error", (error) => broken(new Error(`the heartbeat thread failed: ${error.message}`)));
    this.thread.on("exit", () => {
      if (!this.stopped) broken(new Error("the heartbeat thread ended"));
    });
  }

  /** add starts to extend leases. It sends them at once, because a handler may block this thread. */
  add(steps: ClaimedStep[], asked: number): void {
    if (steps.length === 0) return;
    this.post({ added: steps.map((step) => ({ ...leaseOf(step), expires: step.lease_expires_at, asked })) });
  }

  /** remove stops extending a lease, soon: leases that end are sent together. */
  remove(token: string): void {
    this.removed.push(token);
    this.timer ??= setTimeout(() => this.post({}), flushMs).unref();
  }

  registered(registration: Registration): void {
    this.post({ registration });
  }

  renew(): void {
    this.post({ renew: true });
  }

  async stop(): Promise<void> {
    this.stopped = true;
    clearTimeout(this.timer);
    await this.thread.terminate();
  }

  private post(message: ToHeartbeat): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    const removed = this.removed;
    this.removed = [];
    this.thread.postMessage(removed.length > 0 ? { removed, ...message } : message);
  }
}
