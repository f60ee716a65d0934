// Requests to people over all sessions, as `GET /requests` lists them.
import type { HumanRequest, JsonObject, RequestAnswer } from "greenroom-client";
import type { RequestItem } from "../timeline/model";
import { objectOf, textOf } from "../timeline/requests";

/** The list with changed requests in their places, newest first. Closed ones leave it, and those that no longer wait for the approver. */
export function merge(requests: readonly HumanRequest[], changed: readonly HumanRequest[], approver = ""): readonly HumanRequest[] {
  const byId = new Map(requests.map((request) => [request.id, request]));
  for (const request of changed) {
    const matches = isOpen(request) && (approver === "" || request.excluded?.includes(approver) !== true);
    if (matches) byId.set(request.id, request);
    else byId.delete(request.id);
  }
  return [...byId.values()].sort((one, other) => other.createdAt - one.createdAt || (one.id < other.id ? 1 : -1));
}

export function isOpen(request: HumanRequest): boolean {
  return (request.status ?? "open") === "open";
}

/** The request as the timeline shows it. */
export function contentOf(request: HumanRequest): RequestItem["request"] {
  const { kind, tool = "", message = "" } = request;
  const args = request.arguments ?? {};
  if (kind === "approval") return { type: "approval", tool, args, hint: message, policy: null };
  if (kind === "login") return { type: "login", config: objectOf(args.authConfig) };
  const question = message || (tool === "" ? "" : `${tool} asks for input`);
  return { type: "input", message: question, payload: request.payload ?? request.arguments ?? null, schema: request.responseSchema ?? null };
}

/** A function response, as the forms make it, as the answer to a request. */
export function answerOf(kind: HumanRequest["kind"], response: JsonObject): RequestAnswer {
  if (kind === "login") return "error" in response ? { confirmed: false } : { response };
  if (kind === "input") return { response: Object.keys(response).join() === "result" ? (response.result ?? null) : response };
  const comment = textOf(response.hint);
  return {
    confirmed: response.confirmed === true,
    ...(response.payload === undefined ? {} : { payload: response.payload }),
    ...(comment === "" ? {} : { comment }),
  };
}
