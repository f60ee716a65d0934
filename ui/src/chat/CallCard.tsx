import type { JsonObject, WakeUp } from "greenroom-client";
import { Ban, CircleCheck, Clock, LoaderCircle, Moon, TriangleAlert } from "lucide-react";
import { type ReactNode, Suspense, lazy, useContext, useState } from "react";
import { JsonView } from "../components/JsonView";
import { Duration } from "../components/Time";
import { WakeUpText } from "../components/Waiting";
import type { ToolCall } from "../timeline/model";
import { Fields } from "./Value";
import { OutputsContext, useChat } from "./context";

const AnswerForm = lazy(() => import("./AnswerForm"));

const LOOKS = {
  running: { icon: LoaderCircle, tone: "busy", name: "running" },
  waiting: { icon: Clock, tone: "wait", name: "waiting" },
  done: { icon: CircleCheck, tone: "ok", name: "done" },
  failed: { icon: TriangleAlert, tone: "bad", name: "failed" },
  stopped: { icon: Ban, tone: "idle", name: "stopped" },
} as const;

/** A tool call from call to response. children: its steps. */
export function CallCard({ call, children }: { call: ToolCall; children: ReactNode }) {
  const { open, answer } = useChat();
  const [isJson, setJson] = useState(false);
  const { icon: Icon, tone, name } = LOOKS[call.state];
  const response = call.response;
  const output = useContext(OutputsContext).get(call.id);
  const form = { label: `Answer of ${call.name}`, schema: null, send: (value: JsonObject) => answer(call.id, call.name, value) };
  return (
    <article className={`call ${tone}`} aria-label={`Call of ${call.name}, ${name}`}>
      <header className="call-head">
        <span className={`status ${tone}`} title={name}>
          <Icon size={14} aria-hidden="true" />
        </span>
        <button type="button" className="call-name mono" onClick={() => open(call.eventIds[0] ?? "")} title="Inspect">
          {call.name}
        </button>
        {call.attempt > 1 && <span className="soft">attempt {call.attempt}</span>}
        <span className="spread" />
        {call.state !== "waiting" && call.state !== "stopped" && (
          <span className="soft">
            <Duration from={call.startedAt} to={call.endedAt} />
          </span>
        )}
        {(call.state === "waiting" || call.state === "stopped") && <span className={`status ${tone}`}>{name}</span>}
        <button type="button" className="link" aria-pressed={isJson} onClick={() => setJson(!isJson)}>
          JSON
        </button>
      </header>
      {isJson ? (
        <JsonView value={{ id: call.id, name: call.name, args: call.args, response }} />
      ) : (
        <>
          <Fields of={call.args} label="Arguments" />
          {call.steps.length > 0 && (
            <details className="steps">
              <summary>{call.steps.length} steps inside</summary>
              {children}
            </details>
          )}
          {call.state === "running" && output !== undefined && (
            <pre className="code call-output" aria-label="Output so far">
              {output.text}
            </pre>
          )}
          {call.error !== null && <p className="call-error">{call.error}</p>}
          {call.error === null && response !== null && (
            <div className="call-result">
              <Fields of={response} label="Result" />
            </div>
          )}
          {call.wakeUp !== null && <Sleeping wakeUp={call.wakeUp} inspect={() => open(call.eventIds[0] ?? "", "overview")} />}
          {call.state === "waiting" && call.isLongRunning && call.wakeUp === null && (
            <Suspense>
              <AnswerForm {...form} />
            </Suspense>
          )}
          {call.state === "waiting" && call.wakeUp !== null && (
            <details>
              <summary>Answer the call instead</summary>
              <Suspense>
                <AnswerForm {...form} />
              </Suspense>
            </details>
          )}
        </>
      )}
    </article>
  );
}

/** What a sleeping call waits for. inspect: opens the inspector, where its signal can be sent. */
function Sleeping({ wakeUp, inspect }: { wakeUp: WakeUp; inspect: () => void }) {
  return (
    <p className="row">
      <span className="status wait">
        <Moon size={14} aria-hidden="true" />
      </span>
      <span>
        <WakeUpText wakeUp={wakeUp} />
      </span>
      {wakeUp.signal && (
        <button type="button" className="button small" onClick={inspect}>
          Send the signal…
        </button>
      )}
    </p>
  );
}
