import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/setup.ts"],
    testTimeout: 20_000,
    hookTimeout: 60_000,
    pool: "threads",
    maxWorkers: 2,
    reporters: ["dot"],
  },
});
