import { randomUUID } from "node:crypto";
import { TaskerError } from "./errors.js";
import type { components, operations } from "./generated/api.js";
import { Transport, type RequestOptions, type Shape, type TlsOptions } from "./http.js";
import { keyFromEnvironment } from "./key.js";
import { TaskHandle } from "./task.js";
import { Backoff, sleep } from "./wait.js";

type Schemas = components["schemas"];

/** A task as the API returns it. */
export type Task = Schemas["Task"];
/** A step as the API returns it. */
export type Step = Schemas["Step"];
/** A request to create a task. */
export type CreateTask = Schemas["CreateTask"];
/** An investigation as the API returns it. */
export type Investigation = Schemas["Entry"];
/** A registered template. */
export type Template = Schemas["Template"];
export type RegisteredTemplate = Schemas["RegisteredTemplate"];
export type TemplateDetail = Schemas["TemplateDetail"];
/** Filters of a list of tasks. */
export type TaskFilter = Omit<NonNullable<operations["listTasks"]["parameters"]["query"]>, "offset" | "before">;
/** Filters of a list of investigations. */
export type InvestigationFilter = Omit<NonNullable<operations["listEntries"]["parameters"]["query"]>, "offset">;

/** Options of a {@link Client}. */
export interface ClientOptions {
  /** Base URL of the server. Default: TASKER_URL, or http://127.0.0.1:8080. */
  url?: string;
  /** API key. Default: TASKER_TOKEN. */
  key?: string;
  /** File with the API key, read again when it changes. Default: TASKER_TOKEN_FILE. */
  keyFile?: string;
  /** Timeout of each request in milliseconds. Default 30000. */
  timeoutMs?: number;
  /** How often a request that is safe to repeat is sent again. Default 3. */
  retries?: number;
  tls?: TlsOptions;
}

/** How a request of the client is sent. */
export interface Sending {
  body?: string;
  shape: Shape;
  /** Applying the request twice has the same effect as applying it once. */
  repeatable: boolean;
  headers?: Record<string, string>;
  /** Added to the timeout, in milliseconds. */
  waitMs?: number;
  signal?: AbortSignal | undefined;
}

const pageSize = 50;
const defaultTimeoutMs = 30_000;
const transient = new Set([0, 429, 502, 503, 504]);

/**
 * Client creates tasks, waits for them and repairs them. Its methods reject with a
 * {@link TaskerError}. Requests that are safe to repeat are sent again if the server is unavailable,
 * others only if they certainly did not arrive.
 */
export class Client {
  readonly investigations: Investigations;
  readonly templates: Templates;
  private readonly transport: Transport;
  private readonly timeoutMs: number;
  private readonly retries: number;

  /** It throws INVALID if an option is malformed. It does not connect. */
  constructor(options: ClientOptions = {}) {
    const key = options.key === undefined && options.keyFile === undefined ? keyFromEnvironment() : options;
    this.transport = new Transport({ url: options.url, key: key.key, keyFile: key.keyFile, tls: options.tls });
    this.timeoutMs = options.timeoutMs ?? defaultTimeoutMs;
    this.retries = options.retries ?? 3;
    this.investigations = new Investigations(this);
    this.templates = new Templates(this);
  }

  /** create creates a task. With an idempotency_key the request is safe to repeat. */
  async create(task: CreateTask): Promise<TaskHandle> {
    const created = await this.send<Task>("POST", "/v1/tasks",
      { body: JSON.stringify(task), shape: { task_uuid: "string" }, repeatable: Boolean(task.idempotency_key) });
    return new TaskHandle(this, created.task_uuid);
  }

  /** createMany creates up to 1000 tasks, all or none. The handles are in the order of the requests. */
  async createMany(tasks: CreateTask[]): Promise<TaskHandle[]> {
    const created = await this.send<Schemas["CreatedTasks"]>("POST", "/v1/tasks/bulk",
      { body: JSON.stringify(tasks), shape: { tasks: "array" }, repeatable: tasks.every((t) => t.idempotency_key) });
    return created.tasks.map((t) => new TaskHandle(this, t.task_uuid));
  }

  /** task returns the handle of an existing task. It sends no request. */
  task(uuid: string): TaskHandle {
    return new TaskHandle(this, uuid);
  }

  /** get returns a task with its context and steps. */
  get(uuid: string): Promise<Task> {
    return this.read("/v1/tasks/" + encodeURIComponent(uuid), {}, { task_uuid: "string", status: "string" });
  }

  /** list yields pages of tasks, newest first. The limit of the filter is the size of a page. */
  async *list(filter: TaskFilter = {}): AsyncGenerator<Task[], void> {
    let cursor: { before?: string; offset?: number } = {};
    for (;;) {
      const list = await this.read<Schemas["TaskList"]>("/v1/tasks", { ...filter, ...cursor },
        { tasks: "array", pagination: "object" });
      if (list.tasks.length > 0) yield list.tasks;
      const page = list.pagination;
      if (!page.has_more || list.tasks.length === 0) return;
      cursor = page.next_before ? { before: page.next_before } : { offset: page.offset + page.count };
    }
  }

  /** close closes idle connections. */
  close(): void {
    this.transport.close();
  }

  /** @internal read sends a GET request. */
  read<T>(path: string, query: object, shape: Shape, more: Partial<Sending> = {}): Promise<T> {
    return this.send("GET", path + search(query), { shape, repeatable: true, ...more });
  }

  /** @internal change sends a request with a JSON body and an Idempotency-Key, which makes it repeatable. */
  change<T>(method: string, path: string, body: object, shape: Shape): Promise<T> {
    return this.send(method, path,
      { body: JSON.stringify(body), shape, repeatable: true, headers: { "idempotency-key": randomUUID() } });
  }

  /** @internal send sends a request and repeats it if that is safe. */
  async send<T>(method: string, path: string, sending: Sending): Promise<T> {
    const { repeatable, signal, headers } = sending;
    const options: RequestOptions = {
      timeoutMs: this.timeoutMs + (sending.waitMs ?? 0), signal, ...(headers ? { headers } : {}),
    };
    const rests = new Backoff();
    for (let i = 0; ; i++) {
      try {
        return await this.transport.json<T>(method, path, sending.body, sending.shape, options);
      } catch (error) {
        signal?.throwIfAborted();
        if (!(error instanceof TaskerError)) throw error;
        const again = error.unsent || (repeatable && error.code === "UNAVAILABLE" && transient.has(error.status));
        if (!again || i >= this.retries) throw error;
        await sleep(rests.after(error), signal);
      }
    }
  }
}

/** Investigations lists and ends investigations. */
export class Investigations {
  constructor(private readonly client: Client) {}

  /** list yields pages of investigations, newest first. */
  list(filter: InvestigationFilter = {}): AsyncGenerator<Investigation[], void> {
    return pages(filter.limit, (page) => this.client.read("/v1/dlq", { ...filter, ...page }, { length: "number" }));
  }

  /** get returns an investigation with its snapshot and history. */
  get(uuid: string): Promise<Investigation> {
    return this.client.read("/v1/dlq/entry/" + encodeURIComponent(uuid), {}, { dlq_entry_uuid: "string" });
  }

  /**
   * resolve ends an investigation. It does not change the task: repair its steps first.
   *
   * @param end.status default manually_resolved
   */
  resolve(uuid: string, end: {
    notes: string; by?: string; status?: "manually_resolved" | "permanently_failed" | "cancelled"; compensate?: boolean;
  }): Promise<Investigation> {
    return this.client.change("PATCH", "/v1/dlq/entry/" + encodeURIComponent(uuid), {
      resolution_status: end.status ?? "manually_resolved", resolution_notes: end.notes,
      resolved_by: end.by, compensate: end.compensate,
    }, { dlq_entry_uuid: "string" });
  }
}

/** Templates registers and reads templates. */
export class Templates {
  constructor(private readonly client: Client) {}

  /** put registers a template: YAML text, or the same document as an object. It can be repeated. */
  put(template: string | object): Promise<RegisteredTemplate> {
    const yaml = typeof template === "string";
    return this.client.send("POST", "/v1/templates", {
      body: yaml ? template : JSON.stringify(template), shape: { checksum: "string" }, repeatable: true,
      headers: { "content-type": yaml ? "application/yaml" : "application/json" },
    });
  }

  get(namespace: string, name: string, version: string): Promise<TemplateDetail> {
    const path = ["/v1/templates", ...[namespace, name, version].map(encodeURIComponent)].join("/");
    return this.client.read(path, {}, { checksum: "string" });
  }

  /** list yields pages of templates by namespace and name, newest version first. */
  list(filter: { namespace?: string; limit?: number } = {}): AsyncGenerator<Template[], void> {
    return pages(filter.limit, async (page) => {
      const query = { ...filter, ...page };
      const list = await this.client.read<Schemas["TemplateList"]>("/v1/templates", query, { templates: "array" });
      return list.templates;
    });
  }
}

/** pages yields the pages of a list with offsets. */
async function* pages<T>(size: number | undefined, read: (page: object) => Promise<T[]>): AsyncGenerator<T[], void> {
  const limit = size ?? pageSize;
  for (let offset = 0; ; offset += limit) {
    const page = await read({ limit, offset });
    if (page.length > 0) yield page;
    if (page.length < limit) return;
  }
}

function search(query: object): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null) continue;
    for (const one of Array.isArray(value) ? value : [value]) params.append(name, String(one));
  }
  const text = params.toString();
  return text ? "?" + text : "";
}
