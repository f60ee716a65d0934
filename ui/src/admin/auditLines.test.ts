import type { AuditEntry } from "greenroom-client";
import { expect, test } from "vitest";
import { canonical, linesOf } from "./auditLines";

test("keys are sorted, and missing fields left out", () => {
  expect(canonical({ b: [{ d: 1, c: "é\u0001" }], a: null, A: "x" })).toBe('{"A":"x","b":[{"c":"é\\u0001","d":1}]}');
});

test("lines are sorted by chain and sequence number", () => {
  const entry = (chain: number, sequence: number) => ({ chain, sequence }) as AuditEntry;
  const lines = linesOf([entry(2, 1), entry(1, 10), entry(1, 9)]);
  expect(lines).toBe('{"chain":1,"sequence":9}\n{"chain":1,"sequence":10}\n{"chain":2,"sequence":1}\n');
});
