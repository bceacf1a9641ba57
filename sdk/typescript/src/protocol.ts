import type { components } from "./generated/api.js";
import { codeOf, messageOf, TaskerError } from "./errors.js";
import type { RequestOptions, Shape, Transport } from "./http.js";

type Schemas = components["schemas"];

/** A step that a claim returned. */
export type ClaimedStep = Schemas["ClaimedStep"];

/** The highest version of the worker protocol that this SDK uses. */
export const protocolVersion = 1;

/** Maximum number of leases or outcomes in one request. The protocol allows 1000. */
export const maxBatch = 500;

/** A lease as requests name it. */
export interface Lease {
  step_uuid: string;
  lease_token: string;
}

/** leaseOf returns the lease of a step. */
export function leaseOf(step: Lease): Lease {
  return { step_uuid: step.step_uuid, lease_token: step.lease_token };
}

/** Response to a registration. */
export interface Registration {
  worker_uuid: string;
  heartbeat_interval_ms: number;
  lease_ms: number;
  claim_is_heartbeat?: boolean;
  protocol?: number;
}

/** Response to a heartbeat. */
export interface Beat {
  extended: { step_uuid: string; lease_expires_at: string }[];
  lost: string[];
  drain: boolean;
}

/** Response to a report. */
export interface Receipt {
  accepted: string[];
  rejected: { step_uuid: string; code: string; message: string }[];
  steps: ClaimedStep[];
}

const registrationShape: Shape = { worker_uuid: "string", heartbeat_interval_ms: "number", lease_ms: "number" };
const beatShape: Shape = { extended: "array", lost: "array", drain: "boolean" };
const receiptShape: Shape = { accepted: "array", rejected: "array", steps: "array" };

const shortMs = 10_000;
const reportMs = 30_000;
const releaseMs = 5_000;
const callMs = 2_000;

/** WorkerApi sends the requests of the worker protocol. */
export class WorkerApi {
  constructor(readonly transport: Transport) {}

  register(spec: object, signal?: AbortSignal): Promise<Registration> {
    const options = { timeoutMs: shortMs, signal };
    return this.transport.json("POST", "/v1/workers", JSON.stringify(spec), registrationShape, options);
  }

  async claim(worker: string, max: number, waitMs: number, signal?: AbortSignal): Promise<ClaimedStep[]> {
    const body = JSON.stringify({ max, wait_ms: waitMs });
    const options = { timeoutMs: waitMs + reportMs, signal };
    const answer = await this.post<{ steps: ClaimedStep[] }>(worker, "claims", body, { steps: "array" }, options);
    return checked(answer.steps);
  }

  heartbeat(worker: string, leases: Lease[], timeoutMs: number): Promise<Beat> {
    return this.post(worker, "heartbeat", JSON.stringify({ leases }), beatShape, { timeoutMs });
  }

  /** report sends outcomes, each in JSON, and claims up to claim steps. */
  async report(
    worker: string, outcomes: string[], claim: number, signal: AbortSignal, timeoutMs = reportMs,
  ): Promise<Receipt> {
    const body = `{"results":[${outcomes.join(",")}]${claim > 0 ? `,"claim":{"max":${claim}}` : ""}}`;
    const receipt = await this.post<Receipt>(worker, "results", body, receiptShape, { timeoutMs, signal });
    checked(receipt.steps);
    return receipt;
  }

  async release(worker: string, leases: Lease[]): Promise<Set<string>> {
    const shape: Shape = { released: "array", lost: "array" };
    const answer = await this.post<{ released: string[]; lost: string[] }>(worker, "release",
      JSON.stringify({ leases }), shape, { timeoutMs: releaseMs });
    return new Set([...answer.released, ...answer.lost]);
  }

  /** checkpoint saves a checkpoint, which is JSON text. */
  checkpoint(worker: string, lease: Lease, value: string, signal?: AbortSignal): Promise<void> {
    const body = `${JSON.stringify(leaseOf(lease)).slice(0, -1)},"checkpoint":${value}}`;
    return this.transport.empty("POST", `/v1/workers/${worker}/checkpoint`, body, { timeoutMs: shortMs, signal });
  }

  async drain(worker: string): Promise<void> {
    await this.post(worker, "drain", "{}", { worker_uuid: "string" }, { timeoutMs: callMs });
  }

  leave(worker: string): Promise<void> {
    return this.transport.empty("DELETE", `/v1/workers/${worker}`, undefined, { timeoutMs: callMs });
  }

  document(path: string, signal: AbortSignal): Promise<unknown> {
    return this.transport.document(path, { timeoutMs: reportMs, signal });
  }

  private post<T>(worker: string, action: string, body: string, shape: Shape, options: RequestOptions): Promise<T> {
    return this.transport.json("POST", `/v1/workers/${worker}/${action}`, body, shape, options);
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
  const code = codeOf(error);
  return code === "UNAUTHORIZED" || code === "FORBIDDEN";
}

/** isRefused reports whether the server rejected the content of a request, so that a retry is useless. */
export function isRefused(error: unknown): boolean {
  const code = codeOf(error);
  return code === "INVALID" || code === "TOO_LARGE" || code === "NOT_SUPPORTED";
}

/** isUnknown reports whether a NOT_FOUND is about the object with this id, not about a path that contains it. */
export function isUnknown(error: unknown, id: string): boolean {
  return codeOf(error) === "NOT_FOUND" && messageOf(error).replaceAll(`/${id}`, "").includes(id);
}
