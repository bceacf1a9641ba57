import { describe, expect, test } from "vitest";
import { plain } from "../dist/json.js";

const circular: Record<string, unknown> = { a: {} };
circular.a = { back: circular };

let deep: unknown = 1;
for (let i = 0; i < 600; i++) deep = [deep];

class Money {
    constructor(readonly cents: number) {}
}

describe("plain", () => {
    test.each([
        [null, "null"],
        [true, "true"],
        [-0.5e10, "-5000000000"],
        ['\u2028"ü', '"\u2028\\"ü"'],
        [[], "[]"],
        [{ a: [1, { b: null }] }, '{"a":[1,{"b":null}]}'],
        [{ a: undefined, b: 1 }, '{"b":1}'],
        [new Date(0), '"1970-01-01T00:00:00.000Z"'],
        [{ toJSON: (key: string) => ({ key }) }, '{"key":""}'],
        [{ x: { toJSON: (key: string) => ({ key }) } }, '{"x":{"key":"x"}}'],
        [new URL("http://a/b"), '"http://a/b"'],
        [new Money(5), '{"cents":5}'],
        [Object.create(null), "{}"],
        [Object("text"), '"text"'],
        [JSON.parse('{"__proto__": 1}'), '{"__proto__":1}'],
    ])("%o is %s", (value, text) => {
        expect(JSON.stringify(plain(value, "result"))).toBe(text);
    });

    const shared = { a: 1 };
    test("a value may occur twice", () => {
        expect(JSON.stringify(plain([shared, shared], "result"))).toBe('[{"a":1},{"a":1}]');
    });

    test.each([
        [NaN, "result: NaN is not JSON"],
        [{ value: NaN }, "result.value: NaN is not JSON"],
        [[1, Infinity], "result[1]: Infinity is not JSON"],
        [[undefined], "result[0]: undefined is not JSON"],
        // eslint-disable-next-line no-sparse-arrays
        [[1, , 2], "result[1]: undefined is not JSON"],
        [{ "a b": { f: () => 1 } }, 'result["a b"].f: function is not JSON'],
        [() => 1, "result: function is not JSON"],
        [{ n: 10n }, "result.n: bigint is not JSON"],
        [{ s: Symbol("s") }, "result.s: symbol is not JSON"],
        [circular, "result.a.back: a circular reference is not JSON"],
        [{ items: [0, { when: new Date(NaN) }] }, "result.items[1].when: an invalid Date is not JSON"],
        [{ m: new Map([[1, 2]]) }, "result.m: Map is not JSON"],
        [new Set([1]), "result: Set is not JSON"],
        [{ e: new Error("x") }, "result.e: Error is not JSON"],
        [{ p: Promise.resolve(1) }, "result.p: Promise is not JSON"],
        [new Uint8Array(2), "result: Uint8Array is not JSON"],
        [/x/, "result: RegExp is not JSON"],
        [{ toJSON: () => NaN }, "result: NaN is not JSON"],
        [Object(NaN), "result: NaN is not JSON"],
    ])("%o is refused: %s", (value, message) => {
        expect(() => plain(value, "result")).toThrow(message);
    });

    test("nesting is limited", () => {
        expect(() => plain(deep, "result")).toThrow("nesting of more than 500 levels is not JSON");
    });
});
