// Runs the README of the package and the tutorial against a real server.
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import ts from "typescript";
import { afterEach, beforeEach, expect, inject, test } from "vitest";
import { Client, Worker } from "@tasker/sdk";

const sdk = join(import.meta.dirname, "..");
const repository = join(sdk, "../..");
let directory: string;
const children: ChildProcess[] = [];

beforeEach(() => {
    directory = join(tmpdir(), `tasker-docs-${randomUUID()}`);
    mkdirSync(join(directory, "sdk"), { recursive: true });
});

afterEach(async () => {
    for (const child of children.splice(0).reverse()) await stop(child);
    rmSync(directory, { recursive: true, force: true });
});

/** environment has no TASKER variables but those given. */
function environment(more: object): NodeJS.ProcessEnv {
    const others = Object.entries(process.env).filter(([name]) => !name.startsWith("TASKER_"));
    return { ...Object.fromEntries(others), npm_config_prefer_offline: "true", ...more };
}

function background(
    command: string,
    args: string[],
    cwd: string,
    env: NodeJS.ProcessEnv,
): { child: ChildProcess; text: () => string } {
    const child = spawn(command, args, { cwd, env });
    children.push(child);
    let text = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (text += String(chunk)));
    return { child, text: () => text };
}

async function stop(child: ChildProcess): Promise<number | null> {
    if (child.exitCode !== null) return child.exitCode;
    child.kill("SIGINT");
    const [code] = (await once(child, "exit")) as [number | null];
    return code;
}

async function until(condition: () => boolean): Promise<void> {
    for (let i = 0; !condition(); i++) {
        if (i > 600) throw new Error("the condition did not hold within 30 s");
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
}

/** blocks returns the fenced blocks of a language. */
function blocks(text: string, language: string): string[] {
    return [...text.matchAll(new RegExp("^```" + language + "\\n(.*?)^```$", "gms"))].map((match) => match[1]!);
}

function compiled(source: string): string {
    const options = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 };
    return ts.transpileModule(source, { compilerOptions: options }).outputText;
}

/** program writes TypeScript as a program beside the SDK, compiled. */
function program(name: string, source: string): string {
    const path = join(sdk, "dist", `readme-${name}-${process.pid}.mjs`);
    writeFileSync(path, compiled(source));
    return path;
}

test("the README: a worker, a client and a test", async () => {
    const [worker, client, testing] = blocks(readFileSync(join(sdk, "README.md"), "utf8"), "ts");
    const lines = worker!.split("\n");
    expect(lines.findIndex((line) => line.includes("order.total <= 0"))).toBeLessThanOrEqual(5);
    const env = environment({ TASKER_URL: inject("url"), TASKER_BINARY: inject("binary") });
    const paths = [program("worker", worker!), program("client", client!), program("testing", testing!)];
    try {
        const c = new Client({ url: inject("url") });
        await c.templates.put(
            "{namespace_name: shop, name: pay, version: 1.0.0, steps: [{name: charge, handler: {callable: charge_card}}]}",
        );
        const running = background(process.execPath, [paths[0]!], sdk, env);
        const { stdout } = await promisify(execFile)(process.execPath, [paths[1]!], { cwd: sdk, env });
        expect(stdout).toBe("paid 1200\n");
        expect(await stop(running.child)).toBe(0);
        const tested = await promisify(execFile)(process.execPath, [paths[2]!], { cwd: sdk, env });
        expect(tested.stdout).toBe("{ charge: { paid: 1200 } }\n");
    } finally {
        for (const path of paths) rmSync(path, { force: true });
    }
}, 60_000);

test("the worker of the README of the repository", async () => {
    const readme = readFileSync(join(repository, "README.md"), "utf8");
    const [source, ...more] = blocks(readme, "ts");
    expect(more).toEqual([]);
    expect(source!.split("\n").length).toBeLessThan(10);
    const c = new Client({ url: inject("url") });
    await c.templates.put(blocks(readme, "yaml")[0]!);
    const others = new Worker({ url: inject("url"), namespaces: ["shop"] });
    others.handle("reserve_stock", () => "shelf 7");
    others.handle("charge_card", () => ({ charge_id: "ch_7" }));
    const path = program("repository", source!);
    try {
        await others.start();
        const { child } = background(process.execPath, [path], sdk, environment({ TASKER_URL: inject("url") }));
        const task = await c.create({ namespace: "shop", name: "fulfil_order", context: { order: 7, total: 1200 } });
        const { ship } = await task.result({ timeoutMs: 30_000 });
        expect(ship).toEqual({ parcel: "P-7", paid_by: "ch_7" });
        expect(await stop(child)).toBe(0);
    } finally {
        await others.stop();
        rmSync(path, { force: true });
    }
}, 60_000);

test("the tutorial: every file and command", async () => {
    const page = readFileSync(join(repository, "docs/tutorials/typescript.md"), "utf8");
    symlinkSync(sdk, join(directory, "sdk/typescript"));
    const first = join(directory, "first");
    mkdirSync(join(first, "templates"), { recursive: true });
    for (const [, name, source] of page.matchAll(/^Create `([^`]+)`.*?^```\w+\n(.*?)^```$/gms)) {
        mkdirSync(dirname(join(directory, name!)), { recursive: true });
        writeFileSync(join(directory, name!), source!);
        if (name!.endsWith(".ts")) writeFileSync(join(directory, name!.replace(/ts$/, "js")), compiled(source!));
    }
    const commands = [...page.replace(/^```.*?^```$/gms, "").matchAll(/^ {4}(\S.*)$/gm)].map((match) => match[1]!);
    const env = environment({});
    let server: ReturnType<typeof background> | undefined;
    let worker: ReturnType<typeof background> | undefined;
    let output = "";
    const startWorker = async (more: object) => {
        if (worker) expect(await stop(worker.child)).toBe(0);
        worker = background("node", [`worker.${extension}`], first, { ...env, ...more });
        await until(() => worker!.text().includes("worker registered"));
    };

    // Node.js 20 cannot run TypeScript: there, the test runs the compiled programs.
    const extension = (process.features as { typescript?: unknown }).typescript ? "ts" : "js";
    for (const written of commands) {
        const command = written.replace(/^((GATEWAY=up )?node \w+)\.ts/, `$1.${extension}`);
        if (command.startsWith("(cd sdk/typescript && npm ci")) continue; // the check script has done it
        if (command.startsWith("task … ")) {
            expect(output).toMatch(new RegExp(command.replace(/[().]/g, "\\$&").replaceAll("…", "\\S+")));
        } else if (command.startsWith("{")) {
            expect(output).toContain(command);
        } else if (command.startsWith("go run ./cmd/tasker ")) {
            server = background(
                inject("binary"),
                [...command.split(" ").slice(3), "--listen", "127.0.0.1:0"],
                directory,
                env,
            );
            await until(() => server!.text().includes("tasker is ready at "));
            env.TASKER_URL = /ready at (\S+)/.exec(server.text())![1];
        } else if (written === "node worker.ts") {
            await startWorker({});
        } else if (written === "GATEWAY=up node worker.ts") {
            await startWorker({ GATEWAY: "up" });
        } else {
            const task = output.split("\n")[0] ?? "";
            const cwd = command.startsWith("mkdir") ? directory : first;
            output = (await promisify(execFile)("bash", ["-c", command.replace("TASK", task)], { cwd, env })).stdout;
        }
    }
    expect(await stop(worker!.child)).toBe(0);
}, 120_000);
