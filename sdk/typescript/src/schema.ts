import { Permanent } from "./errors.js";

/** A schema by the Standard Schema interface (standardschema.dev), such as those of zod and valibot. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

const shownIssues = 5;

/**
 * validate returns the value as the schema outputs it. It throws a permanent failure that names the
 * invalid fields, beginning with root.
 */
export async function validate<Output>(
  schema: StandardSchema<unknown, Output>, value: unknown, root: string, type: string,
): Promise<Output> {
  const result = await schema["~standard"].validate(value);
  if (!result.issues) return result.value;
  const faults = result.issues.map((issue) => ({ path: pathOf(issue, root), message: issue.message }));
  const shown = faults.slice(0, shownIssues).map((f) => `${f.path}: ${f.message}`);
  if (faults.length > shownIssues) shown.push(`${faults.length - shownIssues} more`);
  throw new Permanent(shown.join("; "), { type, context: { faults } });
}

function pathOf(issue: SchemaIssue, root: string): string {
  let path = root;
  for (const element of issue.path ?? []) {
    const key = typeof element === "object" ? element.key : element;
    path += typeof key === "number" ? `[${key}]` : `.${String(key)}`;
  }
  return path;
}
