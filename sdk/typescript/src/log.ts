import { messageOf } from "./errors.js";

/** Fields of a log record. */
export type Fields = Record<string, unknown>;

/** Logger receives the messages of a worker. console and winston have this form. */
export interface Logger {
  debug(message: string, fields?: Fields): void;
  info(message: string, fields?: Fields): void;
  warn(message: string, fields?: Fields): void;
  error(message: string, fields?: Fields): void;
}

/** jsonLogger writes one line of JSON per message to stderr, without those of level debug. */
export const jsonLogger: Logger = {
  debug: drop,
  info: (message, fields) => write("info", message, fields),
  warn: (message, fields) => write("warn", message, fields),
  error: (message, fields) => write("error", message, fields),
};

/** silentLogger drops all messages. */
export const silentLogger: Logger = { debug: drop, info: drop, warn: drop, error: drop };

function drop(): void {
  // logs nothing
}

function write(level: string, message: string, fields: Fields = {}): void {
  const record = { time: new Date().toISOString(), level, message, ...fields };
  let line: string;
  try {
    line = JSON.stringify(record, (_, value: unknown) =>
      value instanceof Error ? messageOf(value) : typeof value === "bigint" ? String(value) : value);
  } catch (error) {
    line = JSON.stringify({ time: record.time, level, message, dropped: messageOf(error) });
  }
  process.stderr.write(line + "\n");
}

/** withFields returns a logger that adds fields to each message. */
export function withFields(logger: Logger, fields: Fields): Logger {
  return {
    debug: (message, more) => logger.debug(message, { ...fields, ...more }),
    info: (message, more) => logger.info(message, { ...fields, ...more }),
    warn: (message, more) => logger.warn(message, { ...fields, ...more }),
    error: (message, more) => logger.error(message, { ...fields, ...more }),
  };
}
