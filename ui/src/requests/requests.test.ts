import type { HumanRequest } from "greenroom-client";
import { expect, test } from "vitest";
import { hasWaited, parseFilters, toQuery, toSearch } from "../pages/inboxFilters";
import { answerOf, merge } from "./requests";

function request(id: string, createdAt: number, more: Partial<HumanRequest> = {}): HumanRequest {
  const place = { appName: "desk", userId: "ada", sessionId: "s", runId: `run-${id}`, callId: "c", agent: "desk", function: "adk_request_confirmation" };
  return { id, kind: "approval", status: "open", createdAt, ...place, ...more };
}

const ids = (requests: readonly HumanRequest[]) => requests.map(({ id }) => id).join();

test("changed requests take their places, newest first, and closed ones leave", () => {
  const before = [request("b", 2), request("a", 1)];
  expect(ids(merge(before, [request("c", 3)]))).toBe("c,b,a");
  expect(ids(merge(before, [request("b", 2, { status: "answered" }), request("z", 0)]))).toBe("a,z");
  expect(merge(before, [request("a", 1, { mayAnswer: true })])[1]?.mayAnswer).toBe(true);
});

test("of an approver's list, those leave that wait for others only", () => {
  const before = [request("a", 1, { approvers: ["bob", "carol"] })];
  const voted = request("a", 1, { approvers: ["carol"], excluded: ["bob"] });
  expect(ids(merge(before, [voted], "bob"))).toBe("");
  expect(ids(merge(before, [voted], "carol"))).toBe("a");
  expect(ids(merge(before, [voted]))).toBe("a");
});

test("the forms' function responses become answers", () => {
  expect(answerOf("approval", { confirmed: true, payload: { count: 3 } })).toEqual({ confirmed: true, payload: { count: 3 } });
  expect(answerOf("approval", { confirmed: false, hint: "not today" })).toEqual({ confirmed: false, comment: "not today" });
  expect(answerOf("input", { result: 4 })).toEqual({ response: 4 });
  expect(answerOf("input", { guests: 4 })).toEqual({ response: { guests: 4 } });
  expect(answerOf("login", { error: "access_denied" })).toEqual({ confirmed: false });
});

test("filters come from the address and go to it and to the server", () => {
  const filters = parseFilters({ app: "desk", kind: "approval", tool: "pay", approver: "bob", waited: "1h" });
  expect(toSearch(filters)).toEqual({ app: "desk", kind: "approval", tool: "pay", approver: "bob", waited: "1h" });
  expect(toSearch(parseFilters({ kind: "none", waited: "soon" }))).toEqual({});
  expect(toQuery(filters, 20, null).toString()).toBe("limit=20&app_name=desk&kind=approval&tool=pay&approver=bob");
  expect([3_000, 4_000].map((now) => hasWaited(request("a", 0), filters, now))).toEqual([false, true]);
});
