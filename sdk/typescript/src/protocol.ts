import type { Backend } from "./context.js";
import type { components } from "./generated/api.js";
import { codeOf, messageOf, TaskerError } from "./errors.js";
import type { Request, Shape, Transport } from "./http.js";

type Schemas = components["schemas"];

/** A step that a claim returned. */
export type ClaimedStep = Schemas["ClaimedStep"];
/** A lease as requests name it. */
export type Lease = Schemas["Lease"];
/** Response to a registration. */
export type Registration = Schemas["RegisteredWorker"];
/** Response to a heartbeat. */
export type Beat = Schemas["HeartbeatAnswer"];
/** Response to a report. */
export type Receipt = Schemas["ReportAnswer"];

/** The highest version of the worker protocol that this SDK uses. */
export const protocolVersion = 1;

/** Maximum number of leases or outcomes in one request. The protocol allows 1000. */
export const maxBatch = 500;

/** leaseOf returns the lease of a step. */
export function leaseOf(step: Lease): Lease {
  return { step_uuid: step.step_uuid, lease_token: step.lease_token };
}

/** batches divides a list into parts that fit into one request. */
export function batches<T>(list: T[]): T[][] {
  const count = Math.ceil(list.length / maxBatch);
  return Array.from({ length: count }, (_, i) => list.slice(i * maxBatch, (i + 1) * maxBatch));
}

const registrationShape: Shape = { worker_uuid: "string", heartbeat_interval_ms: "number", lease_ms: "number" };
const beatShape: Shape = { extended: "array", lost: "array", drain: "boolean" };
const receiptShape: Shape = { accepted: "array", rejected: "array", steps: "array" };

/** Timeouts in milliseconds. */
export const reportMs = 30_000;
const shortMs = 10_000;
const releaseMs = 5_000;
const callMs = 2_000;

/** Limits of a request: its timeout in milliseconds, and the signal that cancels it. */
export type Limits = Pick<Request, "timeoutMs" | "signal">;

/** WorkerApi sends the requests of a worker. */
export class WorkerApi implements Backend {
  /** Id of the worker after its registration. */
  worker = "";

  constructor(readonly transport: Transport) {}

  register(spec: object, signal?: AbortSignal): Promise<Registration> {
    const request = { method: "POST", path: "/v1/workers", body: JSON.stringify(spec), timeoutMs: shortMs, signal };
    return this.transport.json(request, registrationShape);
  }

  async claim(max: number, waitMs: number, signal: AbortSignal): Promise<ClaimedStep[]> {
    const request = this.post("claims", { max, wait_ms: waitMs }, { timeoutMs: waitMs + reportMs, signal });
    const { steps } = await this.transport.json<Schemas["ClaimedSteps"]>(request, { steps: "array" });
    return checked(steps);
  }

  heartbeat(leases: Lease[], timeoutMs: number): Promise<Beat> {
    return this.transport.json(this.post("heartbeat", { leases }, { timeoutMs }), beatShape);
  }

  /** report sends outcomes, each in JSON, and claims up to claim steps. */
  async report(outcomes: string[], claim: number, limits: Limits): Promise<Receipt> {
    const body = `{"results":[${outcomes.join(",")}]${claim > 0 ? `,"claim":{"max":${claim}}` : ""}}`;
    const receipt = await this.transport.json<Receipt>(this.post("results", body, limits), receiptShape);
    checked(receipt.steps);
    return receipt;
  }

  async release(leases: Lease[]): Promise<Set<string>> {
    const request = this.post("release", { leases }, { timeoutMs: releaseMs });
    const answer = await this.transport.json<Schemas["Released"]>(request, { released: "array", lost: "array" });
    return new Set([...answer.released, ...answer.lost]);
  }

  checkpoint(step: ClaimedStep, value: unknown, signal: AbortSignal): Promise<void> {
    const body = { ...leaseOf(step), checkpoint: value };
    return this.transport.empty(this.post("checkpoint", body, { timeoutMs: shortMs, signal }));
  }

  async drain(): Promise<void> {
    await this.transport.json(this.post("drain", {}, { timeoutMs: callMs }), { worker_uuid: "string" });
  }

  leave(): Promise<void> {
    return this.transport.empty({ method: "DELETE", path: `/v1/workers/${this.worker}`, timeoutMs: callMs });
  }

  document(path: string, signal: AbortSignal): Promise<unknown> {
    return this.transport.document({ method: "GET", path, timeoutMs: reportMs, signal });
  }

  private post(action: string, body: object | string, limits: Limits): Request {
    const text = typeof body === "string" ? body : JSON.stringify(body);
    return { method: "POST", path: `/v1/workers/${this.worker}/${action}`, body: text, ...limits };
  }
}

function checked(steps: ClaimedStep[]): ClaimedStep[] {
  for (const step of steps) {
    const fields: unknown[] = [step?.step_uuid, step?.lease_token, step?.handler];
    if (fields.some((field) => typeof field !== "string")) {
      throw new TaskerError("UNAVAILABLE", "the response has a step without its ids; is it a Tasker server?");
    }
  }
  return steps;
}

/** isAuthError reports whether the server rejected the key, which may be in the middle of a rotation. */
export function isAuthError(error: unknown): boolean {
  return ["UNAUTHORIZED", "FORBIDDEN"].includes(codeOf(error) ?? "");
}

/** isRefused reports whether the server rejected the content of a request, so that a retry is useless. */
export function isRefused(error: unknown): boolean {
  return ["INVALID", "TOO_LARGE", "NOT_SUPPORTED"].includes(codeOf(error) ?? "");
}

/** isUnknown reports whether a NOT_FOUND is about the object with this id, not about a path that contains it. */
export function isUnknown(error: unknown, id: string): boolean {
  return codeOf(error) === "NOT_FOUND" && messageOf(error).replaceAll(`/${id}`, "").includes(id);
}
