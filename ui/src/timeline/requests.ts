// Requests to a person: calls that the framework writes into the log. Names and shapes are ADK's.
import type { Event, FunctionCall, JsonObject, JsonValue } from "greenroom-client";
import type { RequestItem } from "./model";

const CONFIRMATION = "adk_request_confirmation";
const CREDENTIAL = "adk_request_credential";
const INPUT = "adk_request_input";

/** A model may write calls of these names; only the framework lists them among the long-running ones. */
export function isRequest(event: Event, call: FunctionCall): boolean {
  if (!event.longRunningToolIds?.includes(call.id ?? "")) return false;
  if (call.name === INPUT) return call.args?.interruptId === call.id;
  return call.name === CONFIRMATION || call.name === CREDENTIAL;
}

export function requestOf(call: FunctionCall): RequestItem["request"] {
  const args = call.args ?? {};
  if (call.name === CREDENTIAL) return { type: "login", config: objectOf(args.authConfig) };
  if (call.name === INPUT) {
    const schema = args.response_schema ?? args.responseSchema ?? null;
    return { type: "input", message: textOf(args.message), payload: args.payload ?? null, schema };
  }
  const original = objectOf(args.originalFunctionCall);
  const confirmation = objectOf(args.toolConfirmation);
  return { type: "approval", tool: textOf(original.name), args: objectOf(original.args), hint: textOf(confirmation.hint), policy: args.approvals ? objectOf(args.approvals) : null };
}

/** What is asked for, in a few words. */
export function titleOf(request: RequestItem["request"]): string {
  if (request.type === "approval") return `Allow ${request.tool}?`;
  if (request.type === "login") return "Log in to continue";
  return request.message || "The agent asks for input";
}

export function responseName(request: RequestItem["request"]): string {
  return { approval: CONFIRMATION, login: CREDENTIAL, input: INPUT }[request.type];
}

export function objectOf(value: JsonValue | undefined): JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as JsonObject) : {};
}

export function textOf(value: JsonValue | undefined): string {
  return typeof value === "string" ? value : "";
}
