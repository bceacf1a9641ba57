import type { components } from "./generated/api.js";
import { codeOf, messageOf, TaskerError } from "./errors.js";
import type { Shape, Transport } from "./http.js";

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
    return this.transport.json("POST", "/v1/workers", JSON.stringify(spec), registrationShape,
      { timeoutMs: shortMs, signal });
  }

  async claim(worker: string, max: number, waitMs: number, signal?: AbortSignal): Promise<ClaimedStep[]> {
    const answer = await this.transport.json<{ steps: ClaimedStep[] }>("POST", `/v1/workers/${worker}/claims`,
      JSON.stringify({ max, wait_ms: waitMs }), { steps: "array" }, { timeoutMs: waitMs + reportMs, signal });
    return checked(answer.steps);
  }

  heartbeat(worker: string, leases: Lease[], timeoutMs: number): Promise<Beat> {
    return this.transport.json("POST", `/v1/workers/${worker}/heartbeat`, JSON.stringify({ leases }), beatShape, { timeoutMs });
  }

  /** report sends outcomes, each in JSON, and claims up to claim steps. */
  async report(worker: string, outcomes: string[], claim: number, timeoutMs = reportMs, signal?: AbortSignal): Promise<Receipt> {
    const body = `{"results":[${outcomes.join(",")}]${claim > 0 ? `,"claim":{"max":${claim}}` : ""}}`;
    const receipt = await this.transport.json<Receipt>("POST", `/v1/workers/${worker}/results`, body, receiptShape, { timeoutMs, signal });
    checked(receipt.steps);
    return receipt;
  }

  async release(worker: string, leases: Lease[]): Promise<Set<string>> {
    const answer = await this.transport.json<{ released: string[]; lost: string[] }>("POST", `/v1/workers/${worker}/release`,
      JSON.stringify({ leases }), { released: "array", lost: "array" }, { timeoutMs: releaseMs });
    return new Set([...answer.released, ...answer.lost]);
  }

  /** checkpoint saves a checkpoint, which is JSON text. */
  checkpoint(worker: string, lease: Lease, value: string, signal?: AbortSignal): Promise<void> {
    const body = `{"step_uuid":${JSON.stringify(lease.step_uuid)},"lease_token":${JSON.stringify(lease.lease_token)},"checkpoint":${value}}`;
    return this.transport.empty("POST", `/v1/workers/${worker}/checkpoint`, body, { timeoutMs: shortMs, signal });
  }

  async drain(worker: string): Promise<void> {
    await this.transport.json("POST", `/v1/workers/${worker}/drain`, "{}", { worker_uuid: "string" }, { timeoutMs: callMs });
  }

  leave(worker: string): Promise<void> {
    return this.transport.empty("DELETE", `/v1/workers/${worker}`, undefined, { timeoutMs: callMs });
  }

  document(path: string, signal: AbortSignal): Promise<unknown> {
    return this.transport.document(path, { timeoutMs: reportMs, signal });
  }
}

function checked(steps: ClaimedStep[]): ClaimedStep[] {
  for (const step of steps) {
    if (typeof step?.step_uuid !== "string" || typeof step.lease_token !== "string" || typeof step.handler !== "string") {
      throw new TaskerError("UNAVAILABLE", "the response contains a step without step_uuid, lease_token or handler; is it a Tasker server?");
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
  return codeOf(error) === "NOT_FOUND" && new RegExp(`(?<!/)${id}`).test(messageOf(error));
}
