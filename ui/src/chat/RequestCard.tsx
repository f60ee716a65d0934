import type { JsonObject } from "greenroom-client";
import { Clock } from "lucide-react";
import { useState } from "react";
import { BASE } from "../api";
import { ErrorLine } from "../components/ErrorLine";
import { Time } from "../components/Time";
import type { RequestItem } from "../timeline/model";
import { objectOf, responseName, textOf } from "../timeline/requests";
import { AnswerForm } from "./AnswerForm";
import { Fields } from "./Value";
import { useChat } from "./context";

/** A request to a person, answered in place. */
export function RequestCard({ item }: { item: RequestItem }) {
  const { answer, open, place } = useChat();
  const { request } = item;
  const send = (value: JsonObject) => answer(item.callId, responseName(request), value);
  return (
    <section className={`request${item.isOpen ? " open" : ""}`} aria-label={titleOf(item)}>
      <header className="call-head">
        {item.isOpen && (
          <span className="status wait">
            <Clock size={14} aria-hidden="true" />
          </span>
        )}
        <button type="button" className="call-name" onClick={() => open(item.eventIds[0] ?? "")} title="Inspect">
          {titleOf(item)}
        </button>
        <span className="spread" />
        <span className="soft">
          <Time at={item.at} />
        </span>
      </header>
      {request.type === "approval" && !item.isOpen && <Fields of={request.args} label="Arguments" />}
      {request.type === "input" && request.payload !== null && <Fields of={{ payload: request.payload }} label="Payload" />}
      {item.isOpen && request.type === "approval" && <Approval args={request.args} hint={request.hint} send={send} />}
      {item.isOpen && request.type === "input" && <AnswerForm label="Your answer" schema={request.schema} send={send} />}
      {item.isOpen && request.type === "login" && <Login config={request.config} send={send} />}
      {item.answer !== null && (
        <p className="answered">
          {summary(item)} by <strong>{item.answer.by === "user" ? place.user : item.answer.by}</strong>, <Time at={item.answer.at} />
        </p>
      )}
      {item.answer === null && !item.isOpen && <p className="soft">No longer waiting for an answer.</p>}
    </section>
  );
}

function titleOf({ request }: RequestItem): string {
  if (request.type === "approval") return `Allow ${request.tool}?`;
  if (request.type === "login") return "Log in to continue";
  return request.message || "The agent asks for input";
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

type Send = (value: JsonObject) => Promise<void>;

function Approval({ args, hint, send }: { args: JsonObject; hint: string; send: Send }) {
  const shown = JSON.stringify(args, null, 2);
  const [text, setText] = useState(shown);
  const [isEditing, setEditing] = useState(false);
  const [reason, setReason] = useState<string | null>(null);
  const { isBusy, error, run } = useSending(send);

  function allow() {
    if (text === shown) return run(() => ({ confirmed: true }));
    return run(() => ({ confirmed: true, payload: JSON.parse(text) as JsonObject }));
  }

  return (
    <>
      {hint !== "" && <p>{hint}</p>}
      {isEditing ? (
        <textarea
          className="textarea mono"
          aria-label="Arguments as JSON"
          rows={Math.min(text.split("\n").length, 12)}
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      ) : (
        <Fields of={args} label="Arguments" />
      )}
      {reason !== null && (
        <input
          className="input reason"
          aria-label="Reason for refusing"
          placeholder="Reason (optional)"
          autoFocus
          value={reason}
          onChange={(event) => setReason(event.target.value)}
        />
      )}
      {error !== null && <ErrorLine error={error} />}
      <div className="buttons">
        {reason === null && (
          <button type="button" className="button primary" disabled={isBusy} onClick={() => void allow()}>
            {text === shown ? "Allow" : "Allow with these arguments"}
          </button>
        )}
        <button
          type="button"
          className="button danger"
          disabled={isBusy}
          onClick={() => (reason === null ? setReason("") : void run(() => ({ confirmed: false, ...(reason === "" ? {} : { hint: reason }) })))}
        >
          Refuse{reason === null ? "…" : ""}
        </button>
        {reason !== null && (
          <button type="button" className="button quiet" onClick={() => setReason(null)}>
            Back
          </button>
        )}
        {!isEditing && reason === null && (
          <button type="button" className="button quiet" onClick={() => setEditing(true)}>
            Edit arguments
          </button>
        )}
      </div>
    </>
  );
}

/** Opens the provider's page in a window of its own; it comes back to `/dev-ui/` with the code in its address. */
function Login({ config, send }: { config: JsonObject; send: Send }) {
  const { isBusy, error, run } = useSending(send);
  const [pasted, setPasted] = useState("");
  const exchanged = objectOf(config.exchangedAuthCredential);
  const oauth = objectOf(exchanged.oauth2);
  const address = textOf(oauth.authUri);
  const redirect = new URL(BASE, location.href).href;

  function credential(response: string): JsonObject {
    const oauth2 = { ...oauth, authResponseUri: response, redirectUri: redirect };
    return { ...config, exchangedAuthCredential: { ...exchanged, oauth2 } };
  }

  function logIn() {
    const url = new URL(address);
    url.searchParams.set("redirect_uri", redirect);
    const popup = open(url, "greenroom-login", "popup,width=560,height=720");
    if (popup === null) return;
    const timer = setInterval(() => {
      if (popup.closed) clearInterval(timer);
      let back = "";
      try {
        back = popup.location.href; // throws while it shows the provider's page
      } catch {
        return;
      }
      if (!back.startsWith(redirect) || !back.includes("code=")) return;
      clearInterval(timer);
      popup.close();
      void run(() => credential(back));
    }, 250);
  }

  return (
    <>
      {error !== null && <ErrorLine error={error} />}
      <div className="buttons">
        {/^https?:/.test(address) && (
          <button type="button" className="button primary" disabled={isBusy} onClick={logIn}>
            Log in
          </button>
        )}
        <button type="button" className="button" disabled={isBusy} onClick={() => void run(() => ({ error: "access_denied" }))}>
          Decline
        </button>
      </div>
      <details>
        <summary>Paste the address after the login</summary>
        <form
          className="buttons"
          onSubmit={(event) => {
            event.preventDefault();
            void run(() => credential(pasted));
          }}
        >
          <input className="input spread" aria-label="Address after the login" value={pasted} onChange={(event) => setPasted(event.target.value)} />
          <button type="submit" className="button" disabled={isBusy || pasted === ""}>
            Send
          </button>
        </form>
      </details>
    </>
  );
}

function useSending(send: Send) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  async function run(value: () => JsonObject): Promise<void> {
    setBusy(true);
    setError(null);
    try {
      await send(value());
    } catch (failure) {
      setError(failure instanceof SyntaxError ? new Error("The arguments are not valid JSON") : failure);
      setBusy(false);
    }
  }
  return { isBusy, error, run };
}
