import { randomUUID } from "node:crypto";
import { TaskerError } from "./errors.js";
import type { components, operations } from "./generated/api.js";
import { Transport, type ConnectionOptions, type Shape } from "./http.js";
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
export interface ClientOptions extends ConnectionOptions {
  /** Timeout of each request in milliseconds. Default 30000. */
  timeoutMs?: number;
  /** How often a request that is safe to repeat is sent again. Default 3. */
  retries?: number;
}

/** @internal How a request of the client is sent. */
export interface Sending {
  /** Text, or a document that is sent as JSON. */
  body?: unknown;
  /** Applying the request twice has the same effect as applying it once. Default true. */
  repeatable?: boolean;
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
  readonly investigations = new Investigations(this);
  readonly templates = new Templates(this);
  private readonly transport: Transport;

  /** It throws INVALID if an option is malformed. It does not connect. */
  constructor(private readonly options: ClientOptions = {}) {
    this.transport = new Transport(options);
  }

  /** create creates a task. With an idempotency_key the request is safe to repeat. */
  async create(task: CreateTask): Promise<TaskHandle> {
    const sending = { body: task, repeatable: Boolean(task.idempotency_key) };
    const created = await this.send<Task>("POST", "/v1/tasks", { task_uuid: "string" }, sending);
    return this.task(created.task_uuid);
  }

  /** createMany creates up to 1000 tasks, all or none. The handles are in the order of the requests. */
  async createMany(tasks: CreateTask[]): Promise<TaskHandle[]> {
    const sending = { body: tasks, repeatable: tasks.every((t) => t.idempotency_key) };
    const created = await this.send<Schemas["CreatedTasks"]>("POST", "/v1/tasks/bulk", { tasks: "array" }, sending);
    return created.tasks.map((t) => this.task(t.task_uuid));
  }

  /** task returns the handle of an existing task. It sends no request. */
  task(uuid: string): TaskHandle {
    return new TaskHandle(this, uuid);
  }

  /** get returns a task with its context and steps. */
  get(uuid: string): Promise<Task> {
    return this.send("GET", path("tasks", uuid), { task_uuid: "string", status: "string" });
  }

  /** list yields pages of tasks, newest first. The limit of the filter is the size of a page. */
  list(filter: TaskFilter = {}): AsyncGenerator<Task[], void> {
    return pages(async (cursor) => {
      const shape: Shape = { tasks: "array", pagination: "object" };
      const list = await this.send<Schemas["TaskList"]>("GET", "/v1/tasks" + query({ ...filter, ...cursor }), shape);
      return [list.tasks, list.pagination];
    });
  }

  /** close closes idle connections. */
  close(): void {
    this.transport.close();
  }

  /** @internal change sends a request with an Idempotency-Key, which makes it repeatable. */
  change<T>(method: string, path: string, shape: Shape, body: object): Promise<T> {
    return this.send(method, path, shape, { body, headers: { "idempotency-key": randomUUID() } });
  }

  /** @internal send sends a request and repeats it if that is safe. */
  async send<T>(method: string, path: string, shape: Shape, sending: Sending = {}): Promise<T> {
    const { body, headers, signal, repeatable = true, waitMs = 0 } = sending;
    const { timeoutMs = defaultTimeoutMs, retries = 3 } = this.options;
    const request = {
      method, path, headers, signal, timeoutMs: timeoutMs + waitMs,
      body: typeof body === "string" ? body : JSON.stringify(body),
    };
    const rests = new Backoff();
    for (let i = 0; ; i++) {
      try {
        return await this.transport.json<T>(request, shape);
      } catch (error) {
        signal?.throwIfAborted();
        if (!(error instanceof TaskerError)) throw error;
        const again = error.unsent || (repeatable && error.code === "UNAVAILABLE" && transient.has(error.status));
        if (!again || i >= retries) throw error;
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
    const limit = filter.limit ?? pageSize;
    return pages(async ({ offset = 0 }) => {
      const search = query({ ...filter, limit, offset });
      const entries = await this.client.send<Investigation[]>("GET", "/v1/dlq" + search, { length: "number" });
      return [entries, { has_more: entries.length === limit, offset, count: limit }];
    });
  }

  /** get returns an investigation with its snapshot and history. */
  get(uuid: string): Promise<Investigation> {
    return this.client.send("GET", path("dlq", "entry", uuid), { dlq_entry_uuid: "string" });
  }

  /**
   * resolve ends an investigation. It does not change the task: repair its steps first.
   *
   * @param end.status default manually_resolved
   */
  resolve(uuid: string, end: {
    notes: string; by?: string; status?: "manually_resolved" | "permanently_failed" | "cancelled"; compensate?: boolean;
  }): Promise<Investigation> {
    return this.client.change("PATCH", path("dlq", "entry", uuid), { dlq_entry_uuid: "string" }, {
      resolution_status: end.status ?? "manually_resolved", resolution_notes: end.notes,
      resolved_by: end.by, compensate: end.compensate,
    });
  }
}

/** Templates registers and reads templates. */
export class Templates {
  constructor(private readonly client: Client) {}

  /** put registers a template: YAML text, or the same document as an object. It can be repeated. */
  put(template: string | object): Promise<RegisteredTemplate> {
    const type = typeof template === "string" ? "application/yaml" : "application/json";
    const sending = { body: template, headers: { "content-type": type } };
    return this.client.send("POST", "/v1/templates", { checksum: "string" }, sending);
  }

  get(namespace: string, name: string, version: string): Promise<TemplateDetail> {
    return this.client.send("GET", path("templates", namespace, name, version), { checksum: "string" });
  }

  /** list yields pages of templates by namespace and name, newest version first. */
  list(filter: { namespace?: string; limit?: number } = {}): AsyncGenerator<Template[], void> {
    return pages(async (cursor) => {
      const search = query({ ...filter, ...cursor });
      const shape: Shape = { templates: "array", pagination: "object" };
      const list = await this.client.send<Schemas["TemplateList"]>("GET", "/v1/templates" + search, shape);
      return [list.templates, list.pagination];
    });
  }
}

type Page = Pick<Schemas["Pagination"], "has_more" | "offset" | "count"> & { next_before?: string | null };

/** pages yields the pages of a list. */
async function* pages<T>(
  read: (cursor: { before?: string; offset?: number }) => Promise<[T[], Page]>,
): AsyncGenerator<T[], void> {
  let cursor = {};
  for (;;) {
    const [items, page] = await read(cursor);
    if (items.length > 0) yield items;
    if (!page.has_more || items.length === 0) return;
    cursor = page.next_before ? { before: page.next_before } : { offset: page.offset + page.count };
  }
}

/** @internal path returns the API path of an object. */
export function path(...names: string[]): string {
  return "/v1/" + names.map(encodeURIComponent).join("/");
}

/** @internal query returns the parameters of a request, without those that are not set. */
export function query(values: object): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of [value ?? []].flat()) params.append(name, String(one));
  }
  return params.size > 0 ? `?${params.toString()}` : "";
}
