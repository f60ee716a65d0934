import { createContext, useContext } from "react";
import type { JsonObject, Part } from "greenroom-client";
import type { SessionPlace } from "../api";
import type { ToolOutput } from "../timeline/model";

/** Actions of items of the timeline. */
export type ChatActions = {
  readonly place: SessionPlace;
  readonly open: (eventId: string, tab?: string) => void;
  readonly answer: (callId: string, name: string, response: JsonObject) => Promise<void>;
  readonly runAgain: (eventId: string, parts: readonly Part[] | null) => Promise<void>;
  readonly cancel: (runId: string) => Promise<void>;
  /** Continues a failed or cancelled run; inFork: in a fork of the session, as it has later messages. */
  readonly retry: (runId: string, inFork: boolean) => Promise<void>;
  /** Takes the session back to where the event's run began. */
  readonly rewind: (eventId: string) => Promise<void>;
};

export const ChatContext = createContext<ChatActions | null>(null);

export function useChat(): ChatActions {
  const actions = useContext(ChatContext);
  if (actions === null) throw new Error("outside of the chat page");
  return actions;
}

/** What running tools have printed so far, by call id. */
export const OutputsContext = createContext<ReadonlyMap<string, ToolOutput>>(new Map());
