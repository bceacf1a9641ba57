// Generates a client as docs/how-to/generate-clients.md describes, and runs its program.
import { execFile } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, inject, test } from "vitest";
import { Client } from "@tasker/sdk";

const run = promisify(execFile);
const sdk = join(import.meta.dirname, "..");
const repository = join(sdk, "../..");

test("openapi-typescript and openapi-fetch make a client with types", async () => {
    const page = readFileSync(join(repository, "docs/how-to/generate-clients.md"), "utf8");
    const section = /^## TypeScript\n(.*?)^## /ms.exec(page)![1]!;
    const generate = /^ {4}(npx openapi-typescript .*)$/m.exec(section)![1]!;
    const program = /^```ts\n(.*?)^```$/ms.exec(section)![1]!;

    const directory = mkdtempSync(join(tmpdir(), "tasker-generated-"));
    try {
        symlinkSync(join(sdk, "node_modules"), join(directory, "node_modules"));
        copyFileSync(join(repository, "internal/api/testdata/openapi.json"), join(directory, "openapi.json"));
        writeFileSync(join(directory, "package.json"), '{"type": "module"}');
        writeFileSync(join(directory, "try.ts"), program);
        await run("bash", ["-c", generate], { cwd: directory });
        const options = "--strict --skipLibCheck --module nodenext --target es2022 --types node try.ts".split(" ");
        await run("npx", ["tsc", ...options], { cwd: directory }).catch((error: { stdout: string }) => {
            throw new Error(error.stdout);
        });

        const client = new Client({ url: inject("url") });
        await client.templates.put(
            "{namespace_name: shop, name: pay, version: 1.0.0, steps: [{name: charge, handler: {callable: charge_card}}]}",
        );
        const env = { ...process.env, TASKER_URL: inject("url") };
        const { stdout } = await run(process.execPath, ["try.js"], { cwd: directory, env });
        expect(stdout).toMatch(/^pay \[ true(, (true|false))* \]\n404 NOT_FOUND\n$/);
    } finally {
        rmSync(directory, { recursive: true, force: true });
    }
}, 180_000);
