import { useMutation } from "@tanstack/react-query";
import type { JsonValue, WakeUp } from "greenroom-client";
import { Moon, Send } from "lucide-react";
import { useState } from "react";
import { client } from "../api";
import { ErrorLine } from "../components/ErrorLine";
import { WakeUpText } from "../components/Waiting";

type WakeUpsProps = { readonly runId: string; readonly wakeUps: { readonly [callId: string]: WakeUp } };

/** The times and signals that a run waits for, with a form to send each signal; nothing for a run that doesn't sleep. */
export function WakeUps({ runId, wakeUps }: WakeUpsProps) {
  const found = Object.entries(wakeUps);
  if (found.length === 0) return null;
  const signals = new Set(found.flatMap(([, { signal }]) => signal ?? []));
  return (
    <section aria-label="Sleep">
      <h3>Sleep</h3>
      <ul className="wake-ups">
        {found.map(([callId, wakeUp]) => (
          <li key={callId} className="row">
            <span className="status wait">
              <Moon size={14} aria-hidden="true" />
            </span>
            <span className="spread">
              <WakeUpText wakeUp={wakeUp} />
            </span>
            <code className="soft">{wakeUp.tool}</code>
          </li>
        ))}
      </ul>
      {[...signals].map((signal) => (
        <SignalForm key={signal} runId={runId} signal={signal} />
      ))}
    </section>
  );
}

function SignalForm({ runId, signal }: { readonly runId: string; readonly signal: string }) {
  const [text, setText] = useState("");
  const send = useMutation({ mutationFn: (value: JsonValue) => client.signalRun(runId, signal, value) });
  const value = parsed(text);
  return (
    <form
      className="signal"
      aria-label={`Signal ${signal}`}
      onSubmit={(event) => {
        event.preventDefault();
        if (value !== undefined) send.mutate(value);
      }}
    >
      <label>
        Value of <code>{signal}</code> <span className="soft">as JSON; empty for null</span>
        <textarea className="textarea mono" rows={2} value={text} placeholder='{"amount": 12.5}' onChange={(event) => setText(event.target.value)} />
      </label>
      {value === undefined && <p className="soft">This is not valid JSON.</p>}
      {send.isError && <ErrorLine error={send.error} />}
      <button type="submit" className="button primary" disabled={value === undefined || send.isPending}>
        <Send size={14} aria-hidden="true" />
        Send the signal
      </button>
    </form>
  );
}

/** undefined: not valid JSON. */
function parsed(text: string): JsonValue | undefined {
  if (text.trim() === "") return null;
  try {
    return JSON.parse(text) as JsonValue;
  } catch {
    return undefined;
  }
}
