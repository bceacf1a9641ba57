import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { ClaimedStep } from "../dist/protocol.js";
import type { Logger } from "@tasker/sdk";

/** A request that the fake server received. */
export interface Received {
    method: string;
    path: string;
    /** Last element of the path: claims, results, heartbeat, … */
    action: string;
    body: any;
    headers: IncomingMessage["headers"];
}

/** A response of the fake server. A string body is sent as it is, with type text/html. */
export interface Answer {
    status: number;
    body?: unknown;
    headers?: Record<string, string>;
    /** Closes the connection instead of answering. */
    hangUp?: boolean;
    /** Never answers. */
    hang?: boolean;
}

type Rule = (request: Received) => Answer | undefined;

export const refused = (
    status: number,
    code: string,
    message: string,
    headers: Record<string, string> = {},
): Answer => ({ status, body: { error: { code, message } }, headers });

/** FakeServer implements the worker protocol in memory. Rules replace its answers. */
export class FakeServer {
    readonly worker = randomUUID();
    readonly requests: Received[] = [];
    readonly queue: ClaimedStep[] = [];
    /** Steps that the next heartbeats report as lost. */
    readonly lost = new Set<string>();
    drain = false;
    private drained = false;
    intervalMs = 40;
    leaseMs = 400;
    url = "";
    private readonly rules: Rule[] = [];
    private readonly watchers = new Set<() => void>();
    private server!: Server;

    static async start(): Promise<FakeServer> {
        const fake = new FakeServer();
        fake.server = createServer((request, response) => void fake.serve(request, response));
        fake.server.listen(0, "127.0.0.1");
        await once(fake.server, "listening");
        fake.url = `http://127.0.0.1:${(fake.server.address() as AddressInfo).port}`;
        return fake;
    }

    stop(): void {
        this.server.close();
        this.server.closeAllConnections();
    }

    /** rule answers requests before the normal behavior, unless it returns undefined. The latest rule is first. */
    rule(rule: Rule): void {
        this.rules.unshift(rule);
    }

    /** heal removes the rules. */
    heal(): void {
        this.rules.length = 0;
    }

    /** step queues a step and returns it. */
    step(handler: string, more: Partial<ClaimedStep> = {}): ClaimedStep {
        const step: ClaimedStep = {
            step_uuid: randomUUID(),
            task_uuid: randomUUID(),
            namespace: "n",
            task_name: "t",
            task_version: "1.0.0",
            name: handler,
            handler,
            attempt: 1,
            max_attempts: 3,
            lease_token: randomUUID(),
            lease_expires_at: new Date(Date.now() + this.leaseMs).toISOString(),
            deadline: null,
            correlation_id: "c",
            context: {},
            dependency_results: {},
            initialization: {},
            ...more,
        };
        this.queue.push(step);
        this.changed();
        return step;
    }

    /** results returns all outcomes that arrived, in order. */
    get results(): any[] {
        return this.of("results").flatMap((r) => r.body.results);
    }

    of(action: string): Received[] {
        return this.requests.filter((r) => r.action === action);
    }

    /** until resolves when the condition holds. It is checked after each request. */
    async until(condition: () => boolean, what = "the condition"): Promise<void> {
        const end = Date.now() + 10_000;
        while (!condition()) {
            if (Date.now() > end)
                throw new Error(
                    `${what} did not hold within 10 s; requests: ${this.requests.map((r) => r.action).join(" ")}`,
                );
            await new Promise<void>((resolve) => {
                const watcher = () => {
                    clearTimeout(timer);
                    this.watchers.delete(watcher);
                    resolve();
                };
                const timer = setTimeout(watcher, 100);
                this.watchers.add(watcher);
            });
        }
    }

    private changed(): void {
        for (const watcher of [...this.watchers]) watcher();
    }

    private async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
        const chunks: Buffer[] = [];
        for await (const chunk of request) chunks.push(chunk as Buffer);
        const text = Buffer.concat(chunks).toString();
        const path = request.url ?? "";
        const received: Received = {
            method: request.method ?? "",
            path,
            action: request.method === "DELETE" ? "leave" : (path.split("/").pop() ?? ""),
            body: text ? JSON.parse(text) : undefined,
            headers: request.headers,
        };
        this.requests.push(received);
        let answer: Answer | undefined;
        for (const rule of this.rules) answer ??= rule(received);
        if (answer?.hangUp) request.socket.destroy();
        else if (!answer?.hang) send(response, answer ?? (await this.normal(received, request)));
        this.changed();
    }

    private async normal(r: Received, request: IncomingMessage): Promise<Answer> {
        switch (r.action) {
            case "workers":
                return {
                    status: 201,
                    body: {
                        worker_uuid: this.worker,
                        heartbeat_interval_ms: this.intervalMs,
                        lease_ms: this.leaseMs,
                        protocol: 1,
                    },
                };
            case "claims":
                return {
                    status: 200,
                    body: { steps: await this.take(r.body.max as number, r.body.wait_ms as number, request) },
                };
            case "heartbeat": {
                const leases = r.body.leases as { step_uuid: string }[];
                const end = new Date(Date.now() + this.leaseMs).toISOString();
                const extended = leases
                    .filter((l) => !this.lost.has(l.step_uuid))
                    .map((l) => ({ step_uuid: l.step_uuid, lease_expires_at: end }));
                const lost = leases.filter((l) => this.lost.has(l.step_uuid)).map((l) => l.step_uuid);
                return { status: 200, body: { extended, lost, drain: this.drain } };
            }
            case "results": {
                const accepted = (r.body.results as { step_uuid: string }[]).map((x) => x.step_uuid);
                return {
                    status: 200,
                    body: { accepted, rejected: [], steps: this.queue.splice(0, r.body.claim?.max ?? 0) },
                };
            }
            case "release":
                return {
                    status: 200,
                    body: { released: (r.body.leases as { step_uuid: string }[]).map((l) => l.step_uuid), lost: [] },
                };
            case "drain":
                this.drained = true;
                return { status: 200, body: { worker_uuid: this.worker } };
            case "checkpoint":
            case "leave":
                return { status: 204 };
            default:
                return refused(404, "NOT_FOUND", `no such path: ${r.path}`);
        }
    }

    private async take(max: number, waitMs: number, request: IncomingMessage): Promise<ClaimedStep[]> {
        const end = Date.now() + waitMs;
        while (this.queue.length === 0 && Date.now() < end && !request.socket.destroyed && !this.drained) {
            await new Promise<void>((resolve) => {
                const watcher = () => {
                    this.watchers.delete(watcher);
                    request.socket.off("close", watcher);
                    resolve();
                };
                this.watchers.add(watcher);
                request.socket.once("close", watcher);
                setTimeout(watcher, Math.max(1, Math.min(end - Date.now(), 200))).unref();
            });
        }
        return request.socket.destroyed ? [] : this.queue.splice(0, max);
    }
}

function send(response: ServerResponse, answer: Answer): void {
    if (answer.status === 204) return void response.writeHead(204).end();
    const html = typeof answer.body === "string";
    const text = html ? (answer.body as string) : JSON.stringify(answer.body);
    response
        .writeHead(answer.status, { "content-type": html ? "text/html" : "application/json", ...answer.headers })
        .end(text);
}

/** RecordingLogger keeps messages. */
export class RecordingLogger implements Logger {
    readonly records: { level: string; message: string; fields: any }[] = [];
    debug = this.at("debug");
    info = this.at("info");
    warn = this.at("warn");
    error = this.at("error");

    messages(level?: string): string[] {
        return this.records.filter((r) => level === undefined || r.level === level).map((r) => r.message);
    }

    private at(level: string) {
        return (message: string, fields?: unknown) => void this.records.push({ level, message, fields });
    }
}
