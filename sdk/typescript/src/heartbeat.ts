import { Worker as Thread } from "node:worker_threads";
import type { ErrorCode } from "./errors.js";
import type { ConnectionOptions } from "./http.js";
import type { Lease, Registration } from "./protocol.js";

/** Message to the heartbeat thread. Tokens in removed are deleted before added is applied. */
export interface ToHeartbeat {
  removed?: string[];
  /** New leases with the local time at which their claim was sent. */
  added?: (Lease & { expires: string; asked: number })[];
  registration?: Registration;
  /** Send a heartbeat now. */
  renew?: true;
}

/** Message from the heartbeat thread. Leases are named by their tokens. */
export interface FromHeartbeat {
  /** The thread accepts leases. */
  ready?: true;
  beat?: { drain: boolean; lost: string[]; sent: number };
  lapsed?: string[];
  failed?: { worker: string; code: ErrorCode | undefined; message: string; leases: number };
}

/** Heartbeat controls the heartbeat thread. It sends heartbeats after the first registration. */
export class Heartbeat {
  /** Resolves when the thread accepts leases. */
  readonly ready: Promise<void>;
  private readonly thread: Thread;
  private readonly removed: string[] = [];
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

  /** remove stops extending a lease. Leases that end at the same time are sent together. */
  remove(token: string): void {
    if (this.removed.push(token) === 1) setImmediate(() => this.send({}));
  }

  send(message: ToHeartbeat): void {
    this.thread.postMessage({ ...message, removed: this.removed.splice(0) } satisfies ToHeartbeat);
  }

  async stop(): Promise<void> {
    this.stopped = true;
    await this.thread.terminate();
  }
}
