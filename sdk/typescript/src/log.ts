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
export const jsonLogger = loggerOf((level, message, fields) => {
  if (level === "debug") return;
  const record = { time: new Date().toISOString(), level, message };
  let line: string;
  try {
    line = JSON.stringify({ ...record, ...fields }, (_, value: unknown) =>
      value instanceof Error ? messageOf(value) : typeof value === "bigint" ? String(value) : value);
  } catch (error) {
    line = JSON.stringify({ ...record, dropped: messageOf(error) });
  }
  process.stderr.write(line + "\n");
});

/** silentLogger drops all messages. */
export const silentLogger = loggerOf(() => undefined);

/** withFields returns a logger that adds fields to each message. */
export function withFields(logger: Logger, fields: Fields): Logger {
  return loggerOf((level, message, more) => logger[level](message, { ...fields, ...more }));
}

function loggerOf(write: (level: keyof Logger, message: string, fields?: Fields) => void): Logger {
  const at = (level: keyof Logger) => (message: string, fields?: Fields) => write(level, message, fields);
  return { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
}
