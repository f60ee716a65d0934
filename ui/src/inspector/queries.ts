// What the inspector asks the server.
import { type UseQueryResult, useQuery } from "@tanstack/react-query";
import { type Event, GreenroomError, type JsonObject, type JsonValue } from "greenroom-client";
import { type SessionPlace, client } from "../api";
import { EVENT_ID, type SpanRecord, text } from "./spans";

/** Number of spans of a session that the server sends. */
const MOST_SPANS = 1000;

/** The spans of a session's runs. seq: of the last event, with which they are asked for again. */
export function useSpans(place: SessionPlace, seq: number): UseQueryResult<readonly SpanRecord[]> {
  return useQuery({
    queryKey: ["spans", place.app, place.session, seq],
    queryFn: () => client.getSessionTrace(place.app, place.session),
    placeholderData: (previous) => previous,
  });
}

export type EventSpan = { readonly isPending: boolean; readonly error: Error | null; readonly attributes: JsonObject | null };

/** The model call that failed a run: its span names the event that was to hold the reply, not the one of the error. */
function failedCall(spans: readonly SpanRecord[], event: Event): SpanRecord | undefined {
  if (event.errorCode === undefined) return undefined;
  return spans.findLast(
    ({ attributes }) =>
      attributes["gcp.vertex.agent.invocation_id"] === event.invocationId &&
      attributes["error.type"] !== undefined &&
      attributes[ATTRIBUTE.request] !== undefined,
  );
}

/** The attributes of an event's span: among the session's newest, or else asked for by itself. Null when none is stored. */
export function useEventSpan(place: SessionPlace, event: Event, seq: number): EventSpan {
  const { id: eventId } = event;
  const spans = useSpans(place, seq);
  const ofEvent = spans.data?.filter((one) => one.attributes[EVENT_ID] === eventId) ?? [];
  const found =
    ofEvent.find((one) => one.attributes[ATTRIBUTE.request] !== undefined) ?? ofEvent[0] ?? failedCall(spans.data ?? [], event);
  const isOlder = found === undefined && (spans.data?.length ?? 0) >= MOST_SPANS;
  const older = useQuery({
    queryKey: ["event span", place.app, eventId],
    queryFn: async () => {
      try {
        return await client.getEventTrace(place.app, eventId);
      } catch (error) {
        if (error instanceof GreenroomError && error.status === 404) return null;
        throw error;
      }
    },
    enabled: isOlder,
  });
  return {
    isPending: spans.isPending || (isOlder && older.isPending),
    error: spans.error ?? older.error,
    attributes: found?.attributes ?? older.data ?? null,
  };
}

/** The state that the session had before its first event. */
export function useInitialState(place: SessionPlace): UseQueryResult<JsonObject> {
  return useQuery({
    queryKey: ["initial state", place.app, place.user, place.session],
    queryFn: async () => (await client.getSession(place, { untilSeq: 0 })).state,
    staleTime: Number.POSITIVE_INFINITY,
  });
}

/** A JSON object in an attribute of a span; null when it has none, or one without content. */
export function decoded(span: JsonObject | null | undefined, attribute: string): JsonObject | null {
  const source = text(span?.[attribute]);
  if (source === null) return null;
  try {
    const value = JSON.parse(source) as JsonValue;
    return isObject(value) && Object.keys(value).length > 0 ? value : null;
  } catch {
    return null;
  }
}

export function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function objects(value: JsonValue | undefined): readonly JsonObject[] {
  return Array.isArray(value) ? (value as readonly JsonValue[]).filter(isObject) : [];
}

export const ATTRIBUTE = {
  request: "gcp.vertex.agent.llm_request",
  response: "gcp.vertex.agent.llm_response",
  toolArgs: "gcp.vertex.agent.tool_call_args",
  toolResponse: "gcp.vertex.agent.tool_response",
} as const;
