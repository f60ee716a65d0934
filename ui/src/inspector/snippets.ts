// What can be copied of an event: its JSON, the request that started its run as curl and as a pytest test, and an evaluation case.
import type { EvalCase, Event, Invocation, JsonObject, JsonValue, Part } from "greenroom-client";
import type { SessionPlace } from "../api";
import type { LoggedEvent } from "../timeline/model";

/** The user's message that started the run of an event; null if the log has none. */
export function messageOf(events: readonly LoggedEvent[], event: Event): Event | null {
  const ofRun = events.filter((one) => one.event.invocationId === event.invocationId && one.event.author === "user");
  return ofRun.find((one) => (one.event.content?.parts?.length ?? 0) > 0)?.event ?? null;
}

/** A JSON text as one POSIX shell word. */
export function shellWord(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The command that sends the event's message again, in a session of the same id. */
export function curl(place: SessionPlace, events: readonly LoggedEvent[], event: Event, server: string): string {
  const message = messageOf(events, event);
  const body: JsonObject = {
    appName: place.app,
    userId: place.user,
    sessionId: place.session,
    newMessage: { role: "user", parts: parts(message) },
    streaming: true,
  };
  return [
    `curl -N ${shellWord(`${server}/run_sse`)}`,
    `  -H 'content-type: application/json'`,
    `  -d ${shellWord(JSON.stringify(body))}`,
  ].join(" \\\n");
}

/** The conversation up to the event's run as a case of an evaluation set: what was answered is what is expected. */
export function evalCase(place: SessionPlace, events: readonly LoggedEvent[], event: Event): EvalCase {
  const log = events.map((one) => one.event).filter((one) => !one.isolationScope); // the steps of agents that run as tools
  const runs = [...new Set(log.map((one) => one.invocationId))];
  const conversation = runs.slice(0, runs.indexOf(event.invocationId) + 1).flatMap((run): Invocation[] => {
    const message = messageOf(events, { ...event, invocationId: run });
    if (message?.content === undefined) return [];
    const answers = log.filter((one) => one.invocationId === run && one.author !== "user" && (one.content?.parts?.length ?? 0) > 0);
    const final = answers.findLast((one) => one.content?.parts?.some((part) => part.text && !part.thought && !hasCalls(one)));
    return [
      {
        invocationId: run,
        userContent: message.content,
        ...(final?.content === undefined ? {} : { finalResponse: final.content }),
        intermediateData: {
          invocationEvents: answers.filter((one) => one !== final).map(({ author, content }) => ({ author, ...(content && { content }) })),
        },
        creationTimestamp: message.timestamp,
      },
    ];
  });
  const evalId = `${place.session}_${conversation.length}`.replace(/\W/g, "_");
  return { evalId, conversation, sessionInput: { appName: place.app, userId: place.user } };
}

function hasCalls(event: Event): boolean {
  return event.content?.parts?.some((part) => part.functionCall !== undefined || part.functionResponse !== undefined) === true;
}

function parts(message: Event | null): JsonValue {
  return (message?.content?.parts ?? []) as readonly Part[] as unknown as JsonValue;
}

/** A test that sends the event's message to the app and expects the tool calls and the text that followed it.

    It runs the real agent with its own model; a scripted one makes it deterministic. */
export function pytestSnippet(place: SessionPlace, events: readonly LoggedEvent[], event: Event, server: string): string {
  const message = messageOf(events, event);
  const text = (message?.content?.parts ?? []).map((part) => part.text ?? "").join("");
  const ofRun = events.filter((one) => one.event.invocationId === event.invocationId && one.event !== message);
  const calls = ofRun.flatMap(({ event: one }) => (one.content?.parts ?? []).flatMap((part) => part.functionCall ?? []));
  const answer = ofRun
    .map(({ event: one }) => one)
    .filter((one) => one.author !== "user" && !(one.content?.parts ?? []).some((part) => part.functionCall))
    .map((one) => (one.content?.parts ?? []).map((part) => (part.thought ? "" : (part.text ?? ""))).join(""))
    .findLast((one) => one !== "");
  const expected = calls.map((call) => `        (${python(call.name)}, ${python(call.args ?? {})}),`);
  return [
    "import httpx",
    "import pytest",
    "",
    `BASE = ${python(server)}`,
    "",
    "",
    "@pytest.fixture",
    "def session() -> dict[str, str]:",
    `    path = ${python(`/apps/${encodeURIComponent(place.app)}/users/${encodeURIComponent(place.user)}/sessions`)}`,
    '    session_id = httpx.post(BASE + path, json={}).raise_for_status().json()["id"]',
    `    return {"appName": ${python(place.app)}, "userId": ${python(place.user)}, "sessionId": session_id}`,
    "",
    "",
    `def test_${identifier(text)}(session: dict[str, str]) -> None:`,
    `    message = {"role": "user", "parts": [{"text": ${python(text)}}]}`,
    '    events = httpx.post(BASE + "/run", json={**session, "newMessage": message}, timeout=60).raise_for_status().json()',
    '    parts = [part for event in events for part in event.get("content", {}).get("parts", [])]',
    '    calls = [(p["functionCall"]["name"], p["functionCall"].get("args", {})) for p in parts if "functionCall" in p]',
    ...(expected.length === 0 ? ["    assert calls == []"] : ["    assert calls == [", ...expected, "    ]"]),
    ...(answer === undefined ? [] : [`    assert parts[-1]["text"] == ${python(answer)}`]),
    "",
  ].join("\n");
}

function identifier(text: string): string {
  const words = text.toLowerCase().match(/[a-z0-9]+/g) ?? [];
  return words.slice(0, 6).join("_") || "the_message";
}

/** A JSON value as a Python expression. */
export function python(value: JsonValue | Event): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "string") return JSON.stringify(value).replaceAll("\u007f", "\\x7f");
  if (typeof value === "number") return String(value);
  if (Array.isArray(value)) return `[${(value as readonly JsonValue[]).map(python).join(", ")}]`;
  return `{${Object.entries(value as JsonObject).map(([key, child]) => `${python(key)}: ${python(child)}`).join(", ")}}`;
}
