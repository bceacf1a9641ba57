import { Permanent } from "./errors.js";

/** A value that is not JSON. The message begins with the path of the value. */
export class NotJSON extends Permanent {
  constructor(path: string, problem: string) {
    super(`${path}: ${problem} is not JSON`, { type: "invalid_result" });
  }
}

const maxDepth = 500;

/**
 * plain returns a copy of value that consists of JSON values only. Allowed are null, booleans, finite numbers, strings,
 * arrays, plain objects, instances of classes and objects with a toJSON method. A property whose
 * value is undefined is omitted.
 *
 * It throws {@link NotJSON} with the path of any other value, which JSON.stringify would drop or
 * change: undefined in an array, functions, symbols, bigints, NaN, Infinity, invalid dates, cycles,
 * and built-in objects without toJSON such as Map, Set, Error and Uint8Array.
 *
 * @param path of the value, such as result
 * @param key of the value in its parent
 */
export function plain(value: unknown, path: string, key = "", parents: object[] = []): unknown {
  switch (typeof value) {
    case "string":
    case "boolean":
      return value;
    case "number":
      if (!Number.isFinite(value)) throw new NotJSON(path, String(value));
      return value;
    case "object":
      return value === null ? null : plainObject(value, path, key, parents);
    default:
      throw new NotJSON(path, typeof value);
  }
}

function plainObject(value: object, path: string, key: string, parents: object[]): unknown {
  if (parents.includes(value)) throw new NotJSON(path, "a circular reference");
  if (parents.length >= maxDepth) throw new NotJSON(path, `nesting of more than ${maxDepth} levels`);
  const inside = [...parents, value];
  const toJSON = (value as { toJSON?: unknown }).toJSON;
  if (typeof toJSON === "function") {
    if (value instanceof Date && Number.isNaN(value.getTime())) throw new NotJSON(path, "an invalid Date");
    return plain((toJSON as (key: string) => unknown).call(value, key), path, key, inside);
  }
  if (Array.isArray(value)) {
    return Array.from(value, (element, i) => plain(element, `${path}[${i}]`, String(i), inside));
  }
  const tag = Object.prototype.toString.call(value).slice(8, -1);
  if (tag === "Number" || tag === "String" || tag === "Boolean") return plain(value.valueOf(), path, key, inside);
  if (tag !== "Object") throw new NotJSON(path, tag);
  const copy: Record<string, unknown> = {};
  for (const [name, element] of Object.entries(value)) {
    if (element === undefined) continue;
    const where = /^[A-Za-z_$][\w$]*$/.test(name) ? `${path}.${name}` : `${path}[${JSON.stringify(name)}]`;
    const converted = plain(element, where, name, inside);
    if (name === "__proto__") Object.defineProperty(copy, name, { value: converted, enumerable: true });
    else copy[name] = converted;
  }
  return copy;
}
