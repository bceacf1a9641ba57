// The heartbeats of one worker. They run in a thread with a connection of its own, so that neither
// a handler that blocks the main thread nor a slow report can delay them.
import { parentPort, workerData } from "node:worker_threads";
import { codeOf, messageOf } from "./errors.js";
import type { FromHeartbeat, ToHeartbeat } from "./heartbeat.js";
import { Transport, type ConnectionOptions } from "./http.js";
import { batches, leaseOf, WorkerApi, type Beat, type Lease, type Registration } from "./protocol.js";
import { Backoff, longRest, now, Signal, sleep } from "./wait.js";

interface Held extends Lease {
  /** When the lease expires unless it is extended, by the local clock. Infinity once that is reported. */
  lapses: number;
  /** Expiry by the server, to see whether it changed. */
  expires: string;
}

const idleFactor = 3;
const shortestIdle = 2_000;
const leastTimeout = 2_000;
const mostSplits = 10;

const api = new WorkerApi(new Transport(workerData as ConnectionOptions));
const held = new Map<string, Held>();
const renew = new Signal();
let registration: Registration;

function tell(message: FromHeartbeat): void {
  parentPort!.postMessage(message);
}

function receive(message: ToHeartbeat): void {
  if (message.registration) {
    const first = registration === undefined;
    registration = message.registration;
    api.worker = registration.worker_uuid;
    if (first) void run();
  }
  for (const token of message.removed ?? []) held.delete(token);
  for (const { asked, ...lease } of message.added ?? []) {
    held.set(lease.lease_token, { ...lease, lapses: asked + registration.lease_ms });
    if (now() - asked > registration.heartbeat_interval_ms / 2) renew.wake();
  }
  if (message.renew) renew.wake();
}

/** pause returns how long to wait for the next heartbeat. Claims replace those of an idle worker. */
function pause(): number {
  const interval = registration.heartbeat_interval_ms;
  const idle = held.size === 0 && registration.claim_is_heartbeat === true && interval >= shortestIdle;
  return idle ? interval * idleFactor : interval;
}

/** firstLapse returns how long until the first lease expires, but at most most. */
function firstLapse(most: number): number {
  const at = now();
  let rest = most;
  for (const lease of held.values()) {
    if (lease.lapses > at) rest = Math.min(rest, lease.lapses - at);
  }
  return rest;
}

/** beat sends one heartbeat in batches. It returns an error if one of them failed. */
async function beat(): Promise<unknown> {
  const leases = [...held.values()];
  if (leases.length === 0) return extend([]);
  let failed: unknown;
  for (const batch of batches(leases)) failed = (await extendParts(batch, { left: mostSplits })) ?? failed;
  return failed;
}

/** extendParts splits a request that the server rejects as invalid, to isolate the invalid lease. */
async function extendParts(leases: Held[], splits: { left: number }): Promise<unknown> {
  const error = await extend(leases);
  if (codeOf(error) !== "INVALID" || leases.length < 2 || splits.left === 0) return error;
  splits.left--;
  const half = leases.length >> 1;
  const first = await extendParts(leases.slice(0, half), splits);
  const second = await extendParts(leases.slice(half), splits);
  return first ?? second;
}

async function extend(leases: Held[]): Promise<unknown> {
  const sent = now();
  const { worker } = api;
  try {
    const timeoutMs = firstLapse(Math.max(registration.heartbeat_interval_ms, leastTimeout));
    extended(leases, await api.heartbeat(leases.map(leaseOf), timeoutMs), sent);
    return undefined;
  } catch (error) {
    tell({ failed: { worker, code: codeOf(error), message: messageOf(error), leases: leases.length } });
    lapse();
    return error;
  }
}

/** extended counts a lease from when the heartbeat was sent, if the server has renewed it. */
function extended(leases: Held[], answer: Beat, sent: number): void {
  const ends = new Map(answer.extended.map((x) => [x.step_uuid, x.lease_expires_at]));
  const lost = new Set(answer.lost);
  const gone: string[] = [];
  for (const lease of leases) {
    const end = ends.get(lease.step_uuid);
    if (lost.has(lease.step_uuid)) {
      gone.push(lease.lease_token);
    } else if (end !== undefined && end !== lease.expires) {
      lease.lapses = sent + registration.lease_ms;
      lease.expires = end;
    }
  }
  tell({ beat: { drain: answer.drain, lost: gone, sent } });
}

/** lapse reports the leases that expired while the server was unreachable. */
function lapse(): void {
  const tokens: string[] = [];
  for (const lease of held.values()) {
    if (now() < lease.lapses) continue;
    lease.lapses = Infinity;
    tokens.push(lease.lease_token);
  }
  if (tokens.length > 0) tell({ lapsed: tokens });
}

async function run(): Promise<never> {
  const rests = new Backoff();
  for (;;) {
    await renew.wait(pause());
    for (let error = await beat(); error !== undefined; error = await beat()) {
      // A long Retry-After would let the leases expire.
      await sleep(Math.min(rests.after(error, longRest), longRest, firstLapse(longRest)));
    }
    rests.reset();
  }
}

parentPort!.on("message", receive);
tell({ ready: true });
