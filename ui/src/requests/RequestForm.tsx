import type { JsonObject } from "greenroom-client";
import { useState } from "react";
import { BASE } from "../api";
import AnswerForm from "../chat/AnswerForm";
import { Fields } from "../chat/Value";
import { ErrorLine } from "../components/ErrorLine";
import type { RequestItem } from "../timeline/model";
import { objectOf, textOf } from "../timeline/requests";

/** The hint of tools that give none tells programs how to answer; people have buttons. */
const FOR_CLIENTS = /answering with a function response that holds a ToolConfirmation\.$/;

type Send = (value: JsonObject) => Promise<void>;

/** The form that answers a request to a person. send: takes the function response. */
export default function RequestForm({ request, send }: { request: RequestItem["request"]; send: Send }) {
  switch (request.type) {
    case "approval":
      return <Approval args={request.args} hint={request.hint} send={send} />;
    case "login":
      return <Login config={request.config} send={send} />;
    case "input":
      return (
        <>
          {request.payload !== null && <Fields of={{ payload: request.payload }} label="Payload" />}
          <AnswerForm label="Your answer" schema={request.schema} send={send} />
        </>
      );
  }
}

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

  function refuse(because: string) {
    return run(() => ({ confirmed: false, ...(because === "" ? {} : { hint: because }) }));
  }

  return (
    <>
      {hint !== "" && !FOR_CLIENTS.test(hint) && <p>{hint}</p>}
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
          onKeyDown={(event) => event.key === "Enter" && void refuse(reason)}
        />
      )}
      {error !== null && <ErrorLine error={error} />}
      <div className="buttons">
        {reason === null && (
          <button type="button" className="button primary" data-answer="allow" disabled={isBusy} onClick={() => void allow()}>
            {text === shown ? "Allow" : "Allow with these arguments"}
          </button>
        )}
        <button
          type="button"
          className="button danger"
          data-answer="refuse"
          disabled={isBusy}
          onClick={() => (reason === null ? setReason("") : void refuse(reason))}
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
