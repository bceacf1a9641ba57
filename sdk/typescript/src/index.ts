export { Worker, type WorkerOptions } from "./worker.js";
export { StepContext } from "./context.js";
export type { Handler, HandlerOptions } from "./handler.js";
export type { StandardSchema } from "./schema.js";
export type { TlsOptions } from "./http.js";
export { jsonLogger, silentLogger, type Fields, type Logger } from "./log.js";
export {
  Interrupted, LeaseLost, Permanent, RetryAfter, StepError, StepTimeout, TaskerError, type ErrorCode,
  type FailureOptions,
} from "./errors.js";
export {
  Client, Investigations, Templates, type ClientOptions, type CreateTask, type Investigation, type InvestigationFilter,
  type RegisteredTemplate, type Step, type Task, type TaskFilter, type Template, type TemplateDetail,
} from "./client.js";
export {
  TaskCancelled, TaskFailed, TaskHandle, TaskNotComplete, TaskUnderInvestigation, WaitTimeout, type Change,
  type WaitOptions,
} from "./task.js";
export type { components } from "./generated/api.js";
