// What a person does to a session.
import type { JsonObject, Part, Run, Session } from "greenroom-client";
import { type SessionPlace, call, sessionPath, sessionsPath } from "../api";

export function startRun(place: SessionPlace, parts: readonly Part[], streaming: boolean): Promise<Run> {
  return call("POST", `${sessionPath(place)}/runs`, { newMessage: { role: "user", parts }, streaming });
}

export async function createSession(app: string, user: string): Promise<SessionPlace> {
  const made = await call<Session>("POST", sessionsPath(app, user), {});
  return { app, user, session: made.id };
}

/** Answers a call in the run that waits for it. */
export function answerCall(place: SessionPlace, id: string, name: string, response: JsonObject, streaming: boolean): Promise<Run> {
  return startRun(place, [{ functionResponse: { id, name, response } }], streaming);
}

/** Runs in a fork from before the event, with other parts or, without them, with the event's own. */
export function runAgain(place: SessionPlace, eventId: string, parts: readonly Part[] | null, streaming: boolean): Promise<Run> {
  const path = `${sessionPath(place)}/events/${encodeURIComponent(eventId)}/edit`;
  return call("POST", path, { streaming, ...(parts === null ? {} : { newMessage: { role: "user", parts } }) });
}

export function cancelRun(runId: string): Promise<Run> {
  return call("POST", `/runs/${encodeURIComponent(runId)}/cancel`);
}

const STREAMING = "greenroom.streaming";

export function isStreaming(): boolean {
  return localStorage.getItem(STREAMING) !== "off";
}

export function setStreaming(isOn: boolean): void {
  localStorage.setItem(STREAMING, isOn ? "on" : "off");
}
