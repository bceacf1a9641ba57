import { setTimeout as setTimer } from "node:timers/promises";
import { TaskerError } from "./errors.js";

/** now returns milliseconds of a monotonic clock that all threads share. */
export function now(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1e3 + nanoseconds / 1e6;
}

/**
 * sleep resolves after ms milliseconds, or when the signal aborts. It resolves to false if the
 * signal aborted.
 */
export function sleep(ms: number, signal?: AbortSignal): Promise<boolean> {
  return setTimer(Math.max(0, ms), true, { signal }).catch(() => false);
}

/** Signal wakes one waiting loop. A wake without a waiter is kept for the next wait. */
export class Signal {
  private pending = false;
  private waiter: (() => void) | undefined;

  wake(): void {
    if (this.waiter) this.waiter();
    else this.pending = true;
  }

  /** wait resolves after a wake, or after ms milliseconds. */
  wait(ms?: number): Promise<void> {
    if (this.pending) {
      this.pending = false;
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const timer = ms === undefined ? undefined : setTimeout(() => this.waiter?.(), Math.max(0, ms));
      this.waiter = () => {
        clearTimeout(timer);
        this.waiter = undefined;
        resolve();
      };
    });
  }
}

/** Limits of delays between retries, in milliseconds. */
export const firstRest = 100;
export const longRest = 5_000;
export const longestRest = 60_000;

/** Backoff computes delays that double with each failure, with jitter. */
export class Backoff {
  private last = 0;

  /** after returns the next delay, at most limit, or the longer one that the server requested with the error. */
  after(error?: unknown, limit = longRest): number {
    this.last = Math.min(Math.max(2 * this.last, firstRest), limit);
    return Math.max(this.last * (1 - Math.random() / 2), retryAfterOf(error));
  }

  reset(): void {
    this.last = 0;
  }
}

/** retryAfterOf returns the delay that the server requested, at most a minute, or 0. */
export function retryAfterOf(error: unknown): number {
  return error instanceof TaskerError ? Math.min(error.retryAfterMs, longestRest) : 0;
}

/** Window limits the size of a request. It halves after one that was too large. */
export class Window {
  constructor(readonly most: number, public size = most) {}

  shrink(n: number): void {
    this.size = Math.max(1, Math.min(this.size, Math.floor(n / 2)));
  }

  grow(): void {
    this.size = Math.min(2 * this.size, this.most);
  }
}
