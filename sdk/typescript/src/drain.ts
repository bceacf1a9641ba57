import { once } from "node:events";
import { codeOf, Interrupted } from "./errors.js";
import type { Run } from "./run.js";
import { now } from "./wait.js";

/** Time limits of a drain, in milliseconds. */
const defaultDrainTimeoutMs = 20_000;
const claimGrace = 1_000; // for a pending claim, which may return steps; the announcement ends it
const stopGrace = 5_000; // for handlers with an aborted signal
const reportTime = 10_000; // for the last reports if the server cannot be reached

/** work claims and executes steps until the run is stopping. Then it drains. */
export async function work(run: Run): Promise<void> {
  const reporting = new AbortController();
  const claiming = new AbortController();
  const claims = run.claim(claiming.signal);
  const reports = run.reporter.start(reporting.signal);
  if (!run.stopping.signal.aborted) await once(run.stopping.signal, "abort");

  run.draining = true;
  run.slot.wake();
  run.log.info("worker draining", { worker: run.api.worker, held: run.attempts.size });
  const announcement = run.announced ? undefined : announceDrain(run);
  await within(claimGrace, claims, claiming);
  const stuck = await settle(run);
  run.reporter.close();
  await within(reportTime, reports, reporting);
  await announcement;
  await run.releases;
  await run.releaseAll();
  await run.heartbeat.stop();
  await leave(run);
  if (run.failure) throw run.failure;
  if (stuck > 0) throw new Error(`${stuck} handlers ignored their aborted signal; their steps were released`);
}

/** within waits for an activity, and aborts it after ms milliseconds. */
async function within(ms: number, activity: Promise<void>, controller: AbortController): Promise<void> {
  const timer = setTimeout(() => controller.abort(), ms);
  await activity;
  clearTimeout(timer);
}

/** announceDrain tells the server, so that operators see the drain. The drain does not depend on it. */
async function announceDrain(run: Run): Promise<void> {
  try {
    await run.api.drain();
  } catch (error) {
    if (codeOf(error) !== "NOT_FOUND") run.warn("could not announce the drain", error);
  }
}

/**
 * settle waits for the handlers until the drain timeout and then aborts them. It returns how many
 * ignore that and still run; their steps are released.
 */
async function settle(run: Run): Promise<number> {
  const unfinished = () => [...run.attempts.values()].filter((attempt) => !attempt.outcome);
  await handled(run, run.options.drainTimeoutMs ?? defaultDrainTimeoutMs);
  for (const attempt of unfinished()) {
    attempt.controller.abort(new Interrupted("the worker is shutting down: the step is released for another worker"));
  }
  await handled(run, stopGrace);
  const stuck = unfinished();
  for (const attempt of stuck.filter((a) => !a.dropped)) {
    run.drop(attempt);
    run.release(attempt.step);
  }
  return stuck.length;
}

/** handled waits until no handler runs, at most ms milliseconds. */
async function handled(run: Run, ms: number): Promise<void> {
  const end = now() + ms;
  while (run.running > 0 && now() < end) await run.handled.wait(end - now());
}

async function leave(run: Run): Promise<void> {
  try {
    await run.api.leave();
    run.log.info("worker unregistered", { worker: run.api.worker, unreported: run.attempts.size });
  } catch (error) {
    if (codeOf(error) === "NOT_FOUND") return;
    run.warn("could not unregister the worker; the server will remove it when heartbeats stop", error);
  }
}
