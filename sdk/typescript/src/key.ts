import { readFileSync, statSync } from "node:fs";
import { messageOf, TaskerError } from "./errors.js";
import { now } from "./wait.js";

/** Where the API key comes from. Neither means that no key is sent. */
export interface KeyOptions {
  /** API key. */
  key?: string | undefined;
  /** File that contains the API key. It is read again when it changes, and every minute. */
  keyFile?: string | undefined;
}

const maxAge = 60_000;
const maxKey = 16 << 10;

/** keyFromEnvironment reads TASKER_TOKEN_FILE and TASKER_TOKEN. */
export function keyFromEnvironment(): KeyOptions {
  return { keyFile: process.env.TASKER_TOKEN_FILE || undefined, key: process.env.TASKER_TOKEN || undefined };
}

/** KeySource returns the current API key. */
export class KeySource {
  private text: string | undefined;
  private stamp = "";
  private readAt = 0;

  /** It throws INVALID if the key cannot be sent in a header. */
  constructor(private readonly options: KeyOptions) {
    if (options.key !== undefined && !options.keyFile) {
      this.text = options.key.trim();
      if (!isKey(this.text)) throw new TaskerError("INVALID", "invalid key: must be one word of printable ASCII");
    }
  }

  /**
   * get returns the key, or undefined if there is none. While the file is being replaced it returns
   * the previous key. It throws UNAUTHORIZED if the file cannot be read.
   */
  get(): string | undefined {
    const { keyFile } = this.options;
    if (!keyFile) return this.text;
    const fresh = this.text !== undefined && now() - this.readAt < maxAge;
    try {
      const stat = statSync(keyFile);
      const stamp = `${stat.ino} ${stat.mtimeMs} ${stat.size}`;
      if (fresh && stamp === this.stamp) return this.text;
      this.text = readKey(keyFile);
      this.stamp = stamp;
      this.readAt = now();
    } catch (error) {
      if (fresh) return this.text;
      throw new TaskerError("UNAUTHORIZED", `cannot read the API key: ${messageOf(error)}: ` +
        "the file must contain one API key and be readable by this program");
    }
    return this.text;
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
