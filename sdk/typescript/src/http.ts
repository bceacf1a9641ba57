import { createHash } from "node:crypto";
import http, { type IncomingHttpHeaders } from "node:http";
import https from "node:https";
import { TaskerError } from "./errors.js";
import { KeySource, type KeyOptions } from "./key.js";

/** TLS settings, as of node:tls, in PEM. */
export interface TlsOptions {
  ca?: string;
  cert?: string;
  key?: string;
}

/** How to reach a server. */
export interface ConnectionOptions extends KeyOptions {
  /** Base URL. Default: TASKER_URL, or http://127.0.0.1:8080. */
  url?: string | undefined;
  tls?: TlsOptions | undefined;
}

/** Options of one request. */
export interface RequestOptions {
  timeoutMs: number;
  signal?: AbortSignal | undefined;
  headers?: Record<string, string>;
}

/** Types of the fields that a response of the API has. */
export type Shape = Record<string, "string" | "number" | "boolean" | "object" | "array">;

interface Reply {
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
  readonly url: string;
  private readonly base: URL;
  private readonly agent: http.Agent;
  private readonly key: KeySource;

  /** It throws INVALID if the URL or the key is malformed. */
  constructor(options: ConnectionOptions) {
    this.base = parseURL(options.url || process.env.TASKER_URL || defaultURL);
    this.url = this.base.href.replace(/\/$/, "");
    this.key = new KeySource(options);
    this.agent = this.base.protocol === "https:"
      ? new https.Agent({ keepAlive: true, timeout: idleMs, ...options.tls })
      : new http.Agent({ keepAlive: true, timeout: idleMs });
  }

  close(): void {
    this.agent.destroy();
  }

  /** json sends a request and returns the document of the response, which must have the shape. */
  async json<T>(
    method: string, path: string, body: string | undefined, shape: Shape, options: RequestOptions,
  ): Promise<T> {
    const reply = await this.send(method, path, body, options);
    const doc = success(reply) ? parse(reply.body) : undefined;
    if (!hasShape(doc, shape)) throw this.refusal(reply);
    return doc as T;
  }

  /** empty sends a request whose response is 204. */
  async empty(method: string, path: string, body: string | undefined, options: RequestOptions): Promise<void> {
    const reply = await this.send(method, path, body, options);
    if (reply.status !== 204) throw this.refusal(reply);
  }

  /** document reads a bare document. Its ETag must be the SHA-256 of the body. */
  async document(path: string, options: RequestOptions): Promise<unknown> {
    const reply = await this.send("GET", path, undefined, options);
    const sum = createHash("sha256").update(reply.body).digest("base64url");
    if (reply.status !== 200 || !reply.headers.etag?.includes(sum)) throw this.refusal(reply);
    const doc = parse(reply.body);
    if (doc === undefined) throw this.refusal(reply);
    return doc;
  }

  // It is async so that an unreadable key rejects.
  private async send(method: string, path: string, body: string | undefined, options: RequestOptions): Promise<Reply> {
    const headers: Record<string, string> = {
      accept: "application/json", "user-agent": "tasker-typescript", ...options.headers,
    };
    const key = this.key.get();
    if (key !== undefined) headers.authorization = `Bearer ${key}`;
    if (body !== undefined) {
      headers["content-type"] ??= "application/json";
      headers["content-length"] = String(Buffer.byteLength(body));
    }
    return this.attempt(method, path, body, headers, options);
  }

  private attempt(
    method: string, path: string, body: string | undefined, headers: Record<string, string>, options: RequestOptions,
  ): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const target = new URL(this.base.pathname.replace(/\/$/, "") + path, this.base);
      const { request: open } = target.protocol === "https:" ? https : http;
      const request = open(target, { method, headers, agent: this.agent });
      const end = (act: () => void) => {
        clearTimeout(timer);
        options.signal?.removeEventListener("abort", abort);
        act();
      };
      const fail = (error: Error) => {
        end(() => reject(error));
        request.destroy();
      };
      const abort = () => fail(new TaskerError("UNAVAILABLE", "the request was cancelled"));
      const timer = setTimeout(() => fail(new TaskerError("UNAVAILABLE", `no response from ${this.url} within ` +
        `${Math.round(options.timeoutMs)} ms: the request may still take effect`)), options.timeoutMs);
      request.on("error", (error: NodeJS.ErrnoException) => fail(this.unreachable(error)));
      request.on("response", (response) => {
        const chunks: Buffer[] = [];
        let bytes = 0;
        response.on("data", (chunk: Buffer) => {
          chunks.push(chunk);
          bytes += chunk.length;
          if (bytes > maxAnswer) {
            fail(new TaskerError("TOO_LARGE",
              `the response from ${this.url} is larger than ${maxAnswer} bytes: request less at once`));
          }
        });
        response.on("error", (error) => fail(this.unreachable(error)));
        response.on("end", () => end(() => resolve({
          status: response.statusCode ?? 0, headers: response.headers,
          body: chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks),
        })));
      });
      if (options.signal?.aborted) abort();
      options.signal?.addEventListener("abort", abort, { once: true });
      request.end(body);
    });
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
    const doc = success(reply) ? undefined : parse(reply.body);
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

function parseURL(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !/^https?:$/.test(url.protocol)) {
    throw new TaskerError("INVALID", `invalid url "${text}": must be like http://127.0.0.1:8080`);
  }
  if (url.username || url.password) {
    throw new TaskerError("INVALID", "invalid url: must not contain a user or password; use key or keyFile");
  }
  url.search = url.hash = "";
  return url;
}

function success(reply: Reply): boolean {
  return reply.status >= 200 && reply.status <= 299;
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString("utf8"));
  } catch {
    return undefined;
  }
}

function hasShape(doc: unknown, shape: Shape): boolean {
  if (doc === undefined) return false;
  return Object.entries(shape).every(([field, type]) => {
    const value = (doc as Record<string, unknown> | null)?.[field];
    if (type === "array") return Array.isArray(value);
    return typeof value === type && value !== null;
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
