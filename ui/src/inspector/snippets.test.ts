import { execFileSync } from "node:child_process";
import type { Event } from "greenroom-client";
import { expect, test } from "vitest";
import { curl, evalCase, pytestSnippet, python, shellWord } from "./snippets";

const PLACE = { app: "front desk", user: "ann", session: "s-1" };
const SAID = "It's \"wet\" in $HOME\n`date` \\ ok?";
const EVENTS: readonly Event[] = [
  { id: "1", invocationId: "r", author: "user", timestamp: 1, actions: {}, content: { parts: [{ text: SAID }] } },
  {
    id: "2",
    invocationId: "r",
    author: "front",
    timestamp: 2,
    actions: {},
    content: { parts: [{ functionCall: { id: "c", name: "look", args: { ok: true, none: null, at: [1.5, "ø"] } } }] },
  },
  { id: "3", invocationId: "r", author: "front", timestamp: 3, actions: {}, content: { parts: [{ text: "Yes." }] } },
];
const LOG = EVENTS.map((event, at) => ({ seq: at + 1, event }));
const LAST = EVENTS[2] as Event;

test("a shell passes the body of the curl command on unchanged", () => {
  const command = curl(PLACE, LOG, LAST, "http://127.0.0.1:1").replace(/^curl/, "printf '%s\\n'");
  const [, url, , header, , ...body] = execFileSync("sh", ["-c", command], { encoding: "utf8" }).trimEnd().split("\n");
  expect([url, header]).toEqual(["http://127.0.0.1:1/run_sse", "content-type: application/json"]);
  expect(JSON.parse(body.join("\n"))).toEqual({
    appName: "front desk",
    userId: "ann",
    sessionId: "s-1",
    newMessage: { role: "user", parts: [{ text: SAID }] },
    streaming: true,
  });
  expect(shellWord("a'b")).toBe(`'a'\\''b'`);
});

test("Python reads the values of the snippet as they are in JSON", () => {
  const value = { a: [true, null, 1.5, "ø \u2028 \" \\ \n"], b: {} };
  const script = `import json,sys;print(json.dumps(eval(sys.stdin.read())))`;
  expect(JSON.parse(execFileSync("python3", ["-c", script], { input: python(value), encoding: "utf8" }))).toEqual(value);
});

test("the pytest snippet is Python that expects the calls and the last text", () => {
  const snippet = pytestSnippet(PLACE, LOG, LAST, "http://127.0.0.1:1");
  execFileSync("python3", ["-c", "import ast,sys;ast.parse(sys.stdin.read())"], { input: snippet });
  expect(snippet).toContain('("look", {"ok": True, "none": None, "at": [1.5, "ø"]}),');
  expect(snippet).toContain('assert parts[-1]["text"] == "Yes."');
  expect(snippet).toContain("def test_it_s_wet_in_home_date(");
});

test("a case has the conversation up to the event's run, with its calls and without steps inside tools", () => {
  const inner: Event = { ...LAST, id: "inner", isolationScope: "c", content: { parts: [{ text: "inside" }] } };
  const next: Event = { ...(EVENTS[0] as Event), id: "4", invocationId: "r2" };
  const events = [...EVENTS.slice(0, 2), inner, LAST, next].map((event, at) => ({ seq: at + 1, event }));
  const { evalId, conversation, sessionInput } = evalCase(PLACE, events, LAST);
  expect([evalId, sessionInput]).toEqual(["s_1_1", { appName: "front desk", userId: "ann" }]);
  expect(conversation).toEqual([
    {
      invocationId: "r",
      userContent: { parts: [{ text: SAID }] },
      finalResponse: { parts: [{ text: "Yes." }] },
      intermediateData: { invocationEvents: [{ author: "front", content: EVENTS[1]?.content }] },
      creationTimestamp: 1,
    },
  ]);
  expect(evalCase(PLACE, events, next).conversation).toHaveLength(2);
});
