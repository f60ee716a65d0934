import { Link } from "@tanstack/react-router";
import type { JsonObject, JsonValue } from "greenroom-client";
import { Clock } from "lucide-react";
import { Suspense, lazy } from "react";
import { Time } from "../components/Time";
import type { RequestItem } from "../timeline/model";
import { responseName, textOf, titleOf } from "../timeline/requests";
import { Fields } from "./Value";
import { useChat } from "./context";

const RequestForm = lazy(() => import("../requests/RequestForm"));

/** A request to a person, answered in place. */
export function RequestCard({ item }: { item: RequestItem }) {
  const { answer, open, place } = useChat();
  const { request } = item;
  const others = request.type === "approval" && request.policy !== null ? othersOf(request.policy, place.user) : [];
  const send = (value: JsonObject) => answer(item.callId, responseName(request), value);
  return (
    <section className={`request${item.isOpen ? " open" : ""}`} aria-label={titleOf(request)}>
      <header className="call-head">
        {item.isOpen && (
          <span className="status wait">
            <Clock size={14} aria-hidden="true" />
          </span>
        )}
        <button type="button" className="call-name" onClick={() => open(item.eventIds[0] ?? "")} title="Inspect">
          {titleOf(request)}
        </button>
        <span className="spread" />
        <span className="soft">
          <Time at={item.at} />
        </span>
      </header>
      {request.type === "approval" && !item.isOpen && <Fields of={request.args} label="Arguments" />}
      {request.type === "input" && !item.isOpen && request.payload !== null && <Fields of={{ payload: request.payload }} label="Payload" />}
      {item.isOpen && others.length === 0 && (
        <Suspense>
          <RequestForm request={request} send={send} />
        </Suspense>
      )}
      {item.isOpen && others.length > 0 && (
        <p>
          Waits for {others.join(" or ")}.{" "}
          <Link to="/inbox" search={{ app: place.app }}>
            Open the inbox
          </Link>
        </p>
      )}
      {item.answer !== null && (
        <p className="answered">
          {summary(item)} by <strong>{item.answer.by.map((name) => (name === "user" ? place.user : name)).join(", ")}</strong>,{" "}
          <Time at={item.answer.at} />
          {item.answer.comment !== "" && `: “${item.answer.comment}”`}
        </p>
      )}
      {item.answer === null && !item.isOpen && <p className="soft">No longer waiting for an answer.</p>}
    </section>
  );
}

/** Those whom an approval's policy names in place of the session's user; none if the user may answer. */
function othersOf(policy: JsonObject, user: string): readonly string[] {
  const users = Array.isArray(policy.users) ? (policy.users as readonly JsonValue[]).map(textOf) : [];
  if (users.includes(user) && policy.excludesRequester !== true) return [];
  const scope = textOf(policy.scope);
  return [...users.filter((name) => name !== user), ...(scope === "" ? [] : [`a caller with the scope ${scope}`])];
}

function summary({ request, answer }: RequestItem): string {
  const value = answer?.value ?? {};
  if (request.type === "approval") {
    if (value.confirmed !== true) return textOf(value.hint) === "" ? "Refused" : `Refused (“${textOf(value.hint)}”)`;
    return value.payload === undefined || value.payload === null ? "Allowed" : `Allowed with ${JSON.stringify(value.payload)}`;
  }
  if (request.type === "login") return "error" in value ? "Declined" : "Logged in";
  const keys = Object.keys(value);
  return `Answered ${JSON.stringify(keys.length === 1 && keys[0] === "result" ? value.result : value)}`;
}
