import { codeOf, Interrupted, messageOf } from "./errors.js";
import { maxBatch } from "./protocol.js";
import type { Run } from "./run.js";
import { now } from "./wait.js";

/** Time limits of a drain, in milliseconds. */
const claimGrace = 1_000; // for a pending claim, which may return steps; the announcement ends it
const stopGrace = 5_000; // for handlers with an aborted signal
const reportTime = 10_000; // for the last reports if the server cannot be reached

/** work claims and executes steps until the signal aborts. Then it drains. */
export async function work(run: Run, stopping: AbortSignal, announce: () => boolean): Promise<void> {
  const reporting = new AbortController();
  const claiming = new AbortController();
  const claims = run.claim(claiming.signal);
  const reports = run.reporter.start(reporting.signal);
  await aborted(stopping);

  run.draining = true;
  run.wakeClaim();
  run.log.info("worker draining", { worker: run.worker, held: run.attempts.size });
  const announcement = announce() ? announceDrain(run) : Promise.resolve();
  const grace = setTimeout(() => claiming.abort(), claimGrace);
  await claims;
  clearTimeout(grace);
  const released = new AbortController();
  const releases = releaseUntil(run, released.signal);

  const stuck = await settle(run);
  run.reporter.close();
  const last = setTimeout(() => reporting.abort(), reportTime);
  await reports;
  clearTimeout(last);
  released.abort();
  run.back.wake();
  await releases;
  await announcement;
  await release(run);
  await run.heartbeat?.stop();
  await leave(run);
  if (stuck > 0) throw new Error(`${stuck} handlers ignored their aborted signal; their steps were released`);
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}

/** announceDrain tells the server, so that operators see the drain. The drain does not depend on it. */
async function announceDrain(run: Run): Promise<void> {
  try {
    await run.api.drain(run.worker);
  } catch (error) {
    if (codeOf(error) !== "NOT_FOUND") run.warn("could not announce the drain", error);
  }
}

/**
 * settle waits for the handlers until the drain timeout and then aborts them. It returns how many
 * ignore that and still run; their steps are released.
 */
async function settle(run: Run): Promise<number> {
  if (await handled(run, run.options.drainTimeoutMs)) return 0;
  for (const attempt of run.attempts.values()) {
    if (!attempt.finished) attempt.controller.abort(new Interrupted());
  }
  if (await handled(run, stopGrace)) return 0;
  let stuck = 0;
  for (const attempt of [...run.attempts.values()].filter((a) => !a.finished)) {
    stuck++;
    if (attempt.dropped) continue;
    attempt.dropped = true;
    run.heartbeat?.remove(attempt.token);
    run.release(attempt.step);
  }
  return stuck;
}

/** handled waits until no handler runs. It returns false after ms milliseconds. */
async function handled(run: Run, ms: number): Promise<boolean> {
  const end = now() + ms;
  while (run.running > 0 && now() < end) await run.handled.wait(end - now());
  return run.running === 0;
}

async function releaseUntil(run: Run, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await release(run);
    if (!signal.aborted) await run.back.wait();
  }
}

/** release releases the leases of steps that were not executed. Those that fail are kept for the next call. */
async function release(run: Run): Promise<void> {
  const leases = run.unstarted.splice(0);
  for (let i = 0; i < leases.length; i += maxBatch) {
    const batch = leases.slice(i, i + maxBatch);
    let done = new Set<string>();
    try {
      done = await run.api.release(run.worker, batch);
    } catch (error) {
      run.warn("could not release steps", error, { steps: batch.length });
    }
    run.unstarted.push(...batch.filter((lease) => !done.has(lease.step_uuid)));
  }
}

async function leave(run: Run): Promise<void> {
  try {
    await run.api.leave(run.worker);
    run.log.info("worker unregistered", { worker: run.worker, unreported: run.attempts.size });
  } catch (error) {
    if (codeOf(error) === "NOT_FOUND") return;
    run.log.warn("could not unregister the worker; the server will remove it when heartbeats stop",
      { worker: run.worker, error: messageOf(error) });
  }
}

