// What a person does to a session.
import type { JsonObject, Part, Run } from "greenroom-client";
import { type SessionPlace, client } from "../api";

/** What a message does that is sent while a run is active. */
export type Strategy = "enqueue" | "steer" | "interrupt";

export function startRun(place: SessionPlace, parts: readonly Part[], streaming: boolean, strategy: Strategy = "enqueue"): Promise<Run> {
  return client.startRun(place, { message: { role: "user", parts }, streaming, multitaskStrategy: strategy });
}

export async function createSession(app: string, user: string): Promise<SessionPlace> {
  return { app, user, session: (await client.createSession(app, user)).id };
}

/** Answers a call in the run that waits for it. */
export function answerCall(place: SessionPlace, id: string, name: string, response: JsonObject, streaming: boolean): Promise<Run> {
  return startRun(place, [{ functionResponse: { id, name, response } }], streaming);
}

/** Runs in a fork from before the event, with other parts or, without them, with the event's own. */
export function runAgain(place: SessionPlace, eventId: string, parts: readonly Part[] | null, streaming: boolean): Promise<Run> {
  return client.editEvent(place, eventId, { streaming, ...(parts === null ? {} : { message: { role: "user", parts } }) });
}

const STREAMING = "greenroom.streaming";

export function isStreaming(): boolean {
  return localStorage.getItem(STREAMING) !== "off";
}

export function setStreaming(isOn: boolean): void {
  localStorage.setItem(STREAMING, isOn ? "on" : "off");
}
