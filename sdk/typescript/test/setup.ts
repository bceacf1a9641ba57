// Starts one server for all tests. TASKER_BINARY names the binary; without it, go builds one.
import { execFileSync } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { DevServer } from "@tasker/sdk/testing";

declare module "vitest" {
    export interface ProvidedContext {
        url: string;
        binary: string;
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
    const server = await DevServer.start({ binary });
    project.provide("url", server.url);
    project.provide("binary", binary);
    return () => server.stop();
}
