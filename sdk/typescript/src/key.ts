import { readFileSync } from "node:fs";
import { messageOf, TaskerError } from "./errors.js";
import type { ConnectionOptions } from "./http.js";
import { now } from "./wait.js";

const maxAge = 60_000;
const maxKey = 16 << 10;

/** KeySource returns the current API key. */
export class KeySource {
  private readonly file: string | undefined;
  private key: string | undefined;
  private readAt = 0;

  /** It throws INVALID if the key cannot be sent in a header. */
  constructor(options: ConnectionOptions) {
    const given = options.key !== undefined || options.keyFile !== undefined;
    this.file = given ? options.keyFile : process.env.TASKER_TOKEN_FILE;
    if (this.file) return;
    const key = given ? options.key : process.env.TASKER_TOKEN || undefined;
    this.key = key?.trim();
    if (this.key !== undefined && !isKey(this.key)) {
      throw new TaskerError("INVALID", "invalid key: must be one word of printable ASCII");
    }
  }

  /**
   * get returns the key, or undefined if there is none. While the file is being replaced it returns
   * the previous key. It throws UNAUTHORIZED if the file cannot be read.
   */
  get(): string | undefined {
    if (!this.file) return this.key;
    try {
      this.key = readKey(this.file);
      this.readAt = now();
    } catch (error) {
      if (this.key === undefined || now() - this.readAt >= maxAge) {
        throw new TaskerError("UNAUTHORIZED", `cannot read the API key: ${messageOf(error)}: ` +
          "the file must contain one API key and be readable by this program");
      }
    }
    return this.key;
  }
}

function readKey(path: string): string {
  const text = readFileSync(path, "utf8").trim();
  if (text === "") throw new Error(`${path} is empty`);
  if (!isKey(text)) throw new Error(`${path} must contain exactly one key`);
  return text;
}

function isKey(text: string): boolean {
  return text.length <= maxKey && /^[!-~]+$/.test(text);
}
