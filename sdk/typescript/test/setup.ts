// Starts one server for all tests. TASKER_BINARY names the binary; without it, go builds one.
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { DevServer } from "@tasker/sdk/testing";

declare module "vitest" {
    export interface ProvidedContext {
        url: string;
        binary: string;
        /** URL of the database. */
        database: string;
    }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
    let binary = process.env.TASKER_BINARY;
    if (!binary) {
        binary = join(tmpdir(), "tasker-typescript-tests", "tasker");
        execFileSync("go", ["build", "-o", binary, "./cmd/tasker"], {
            cwd: join(import.meta.dirname, "../../.."),
            stdio: "inherit",
        });
    }
    const dataDir = join(tmpdir(), `tasker-typescript-${randomUUID()}`);
    const server = await DevServer.start({ binary, dataDir, testClock: false });
    project.provide("url", server.url);
    project.provide("binary", binary);
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("TASKER_")));
    const printed = execFileSync(binary, ["dev", "--data-dir", dataDir, "--print-url"], { env });
    project.provide("database", printed.toString().trim());
    return async () => {
        await server.stop();
        await rm(dataDir, { recursive: true, force: true });
    };
}
