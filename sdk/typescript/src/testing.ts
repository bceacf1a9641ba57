export { DevServer, type DevServerOptions, type Script } from "./testing/server.js";
export { runStep, type StepInput, type StepOutcome } from "./testing/step.js";
