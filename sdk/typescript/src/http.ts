import { createHash } from "node:crypto";
import http, { type ClientRequest, type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import https from "node:https";
import { TaskerError } from "./errors.js";
import { KeySource } from "./key.js";

/** TLS settings, as of node:tls, in PEM. */
export interface TlsOptions {
  ca?: string;
  cert?: string;
  key?: string;
}

/** How to reach a server. */
export interface ConnectionOptions {
  /** Base URL. Default: TASKER_URL, or http://127.0.0.1:8080. */
  url?: string | undefined;
  /** API key. Default: TASKER_TOKEN. */
  key?: string | undefined;
  /** File with the API key, read again when it changes. Default: TASKER_TOKEN_FILE. */
  keyFile?: string | undefined;
  /** TLS settings, such as a client certificate. */
  tls?: TlsOptions | undefined;
}

/** A request of the API. */
export interface Request {
  method: string;
  path: string;
  body?: string | undefined;
  headers?: Record<string, string> | undefined;
  timeoutMs: number;
  signal?: AbortSignal | undefined;
}

/** Types of the fields that a response of the API has. */
export type Shape = Record<string, "string" | "number" | "boolean" | "object" | "array">;

interface Reply {
  ok: boolean;
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

const maxAnswer = 64 << 20;
const shownBody = 200;
const startOne = "; is the server running? start one with: tasker dev";
/** Idle connections are closed before the server or a proxy closes them. */
const idleMs = 30_000;
const defaultURL = "http://127.0.0.1:8080";

/** Transport sends requests to one server over connections of its own. */
export class Transport {
  /** Base URL without a slash at the end. */
  readonly url: string;
  private readonly agent: http.Agent;
  private readonly key: KeySource;

  /** It throws INVALID if the URL or the key is malformed. */
  constructor(options: ConnectionOptions) {
    this.url = baseURL(options.url || process.env.TASKER_URL || defaultURL);
    this.key = new KeySource(options);
    const agent = { keepAlive: true, timeout: idleMs };
    this.agent = this.secure ? new https.Agent({ ...agent, ...options.tls }) : new http.Agent(agent);
  }

  close(): void {
    this.agent.destroy();
  }

  /** json sends a request and returns the document of the response, which must have the shape. */
  async json<T>(request: Request, shape: Shape): Promise<T> {
    const reply = await this.send(request);
    const doc = reply.ok ? parse(reply.body) : undefined;
    if (!hasShape(doc, shape)) throw this.refusal(reply);
    return doc as T;
  }

  /** empty sends a request whose response is 204. */
  async empty(request: Request): Promise<void> {
    const reply = await this.send(request);
    if (reply.status !== 204) throw this.refusal(reply);
  }

  /** document reads a bare document. Its ETag must be the SHA-256 of the body. */
  async document(request: Request): Promise<unknown> {
    const reply = await this.send(request);
    const sum = createHash("sha256").update(reply.body).digest("base64url");
    const doc = reply.status === 200 && reply.headers.etag?.includes(sum) ? parse(reply.body) : undefined;
    if (doc === undefined) throw this.refusal(reply);
    return doc;
  }

  private get secure(): boolean {
    return this.url.startsWith("https:");
  }

  private async send({ method, path, body, headers, timeoutMs, signal }: Request): Promise<Reply> {
    const sent: Record<string, string> = { accept: "application/json", "user-agent": "tasker-typescript", ...headers };
    const key = this.key.get();
    if (key !== undefined) sent.authorization = `Bearer ${key}`;
    if (body !== undefined) sent["content-type"] ??= "application/json";
    const { request: open } = this.secure ? https : http;
    const request = open(this.url + path, { method, headers: sent, agent: this.agent, signal });
    let late: TaskerError | undefined;
    const timer = setTimeout(() => {
      late = new TaskerError("UNAVAILABLE", `no response from ${this.url} within ${Math.round(timeoutMs)} ms: ` +
        "the request may still take effect");
      request.destroy(late);
    }, timeoutMs);
    try {
      request.end(body);
      return await this.receive(request);
    } catch (error) {
      if (signal?.aborted) throw new TaskerError("UNAVAILABLE", "the request was cancelled");
      throw late ?? (error instanceof TaskerError ? error : this.unreachable(error as NodeJS.ErrnoException));
    } finally {
      clearTimeout(timer);
    }
  }

  private async receive(request: ClientRequest): Promise<Reply> {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      request.on("response", resolve).on("error", reject);
    });
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes > maxAnswer) {
        throw new TaskerError("TOO_LARGE",
          `the response from ${this.url} is larger than ${maxAnswer} bytes: request less at once`);
      }
    }
    const status = response.statusCode ?? 0;
    return { ok: status >= 200 && status <= 299, status, headers: response.headers, body: Buffer.concat(chunks) };
  }

  /** unreachable describes an error without a response. */
  private unreachable(error: NodeJS.ErrnoException): TaskerError {
    const unsent = error.syscall === "connect" || error.syscall === "getaddrinfo";
    return new TaskerError("UNAVAILABLE",
      `cannot reach ${this.url}: ${error.message || error.code}${unsent ? startOne : ""}`, { unsent, cause: error });
  }

  /** refusal converts a response to an error. A response that is not from the API is UNAVAILABLE. */
  private refusal(reply: Reply): TaskerError {
    const retryAfterMs = parseRetryAfter(reply.headers["retry-after"]);
    const doc = reply.ok ? undefined : parse(reply.body);
    const error = (doc as { error?: Record<string, unknown> } | null | undefined)?.error;
    if (typeof error?.code === "string" && error.code && typeof error.message === "string" && error.message) {
      return new TaskerError(error.code, error.message, { status: reply.status, details: error.details, retryAfterMs });
    }
    const to = reply.headers.location;
    const text = this.hide(to ? `, which points to ${to}` : quote(reply.body));
    return new TaskerError("UNAVAILABLE", `${this.url} responded with ${reply.status}${text}; is it a Tasker server?`,
      { status: reply.status, retryAfterMs });
  }

  /** hide removes the key from text, because a proxy may echo headers. */
  private hide(text: string): string {
    const key = this.key.get();
    return key ? text.replaceAll(key, "[hidden]") : text;
  }
}

function baseURL(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !/^https?:$/.test(url.protocol)) {
    throw new TaskerError("INVALID", `invalid url "${text}": must be like http://127.0.0.1:8080`);
  }
  if (url.username || url.password) {
    throw new TaskerError("INVALID", "invalid url: must not contain a user or password; use key or keyFile");
  }
  return url.origin + url.pathname.replace(/\/$/, "");
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString("utf8"));
  } catch {
    return undefined;
  }
}

function hasShape(doc: unknown, shape: Shape): boolean {
  return Object.entries(shape).every(([field, type]) => {
    const value = (doc as Record<string, unknown> | null | undefined)?.[field];
    return type === "array" ? Array.isArray(value) : typeof value === type && value !== null;
  });
}

function quote(body: Buffer): string {
  const text = body.subarray(0, shownBody).toString("utf8").replace(/[\s\p{Cc}]+/gu, " ").trim();
  return text ? `: ${text}` : "";
}

/** parseRetryAfter parses seconds or a time. It returns milliseconds, at most an hour. */
export function parseRetryAfter(header: string | undefined): number {
  if (!header) return 0;
  const ms = /^\d+$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isFinite(ms) ? Math.min(Math.max(ms, 0), 3_600_000) : 0;
}
