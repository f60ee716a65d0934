// Requests to people over all sessions, as `GET /requests` lists them.
import { type UseQueryResult, keepPreviousData, useQuery } from "@tanstack/react-query";
import type { HumanRequest, JsonObject, ListRequestsResponse, RequestAnswer } from "greenroom-client";
import { call } from "../api";
import type { RequestItem } from "../timeline/model";
import { objectOf, textOf } from "../timeline/requests";

const REFRESH_MS = 3_000;

/** The newest open requests that match, read again while the page can be seen. */
export function useRequests(path: string): UseQueryResult<ListRequestsResponse> {
  return useQuery({
    queryKey: ["requests", path],
    queryFn: () => call<ListRequestsResponse>("GET", path),
    refetchInterval: REFRESH_MS,
    placeholderData: keepPreviousData,
  });
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
