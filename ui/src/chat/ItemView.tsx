import type { Part } from "greenroom-client";
import { ArrowRightLeft, FileText, Pencil, RotateCcw, TriangleAlert, Undo2 } from "lucide-react";
import { Suspense, lazy, memo, useState } from "react";
import { SERVER, sessionPath } from "../api";
import { AgentName, agentColor } from "../components/AgentName";
import { Markdown } from "../components/Markdown";
import { REMOVED } from "../inspector/state";
import type { ArtifactItem, BranchesItem, Item, StateItem, TextItem } from "../timeline/model";
import { CallCard } from "./CallCard";
import { FeedbackButtons } from "./FeedbackButtons";
import { StreamingText } from "./StreamingText";
import { Value } from "./Value";
import { useChat } from "./context";

const RequestCard = lazy(async () => ({ default: (await import("./RequestCard")).RequestCard }));

/** One item of the timeline. */
export const ItemView = memo(function ItemView({ item }: { item: Item }) {
  switch (item.kind) {
    case "text":
      return item.isUser ? <UserText item={item} /> : <AgentText item={item} />;
    case "thought":
      return (
        <details className="thought" open={item.isStreaming}>
          <summary>Thought</summary>
          <p>{item.text}</p>
        </details>
      );
    case "calls":
      return (
        <div className={item.calls.length > 1 ? "calls several" : "calls"}>
          {item.calls.map((call) => (
            <CallCard key={call.id} call={call}>
              {call.steps.map((step) => (
                <ItemView key={step.key} item={step} />
              ))}
            </CallCard>
          ))}
        </div>
      );
    case "branches":
      return <Branches item={item} />;
    case "transfer":
      return (
        <p className="rule">
          <ArrowRightLeft size={14} aria-hidden="true" /> Transferred to <AgentName name={item.to} />
          {item.reason !== null && <span className="soft">{item.reason}</span>}
        </p>
      );
    case "state":
      return <StateChips item={item} />;
    case "artifact":
      return <Artifact item={item} />;
    case "request":
      return (
        <Suspense>
          <RequestCard item={item} />
        </Suspense>
      );
    case "code":
      return (
        <div className="call">
          {item.code !== null && <pre className="code">{item.code}</pre>}
          {item.output !== null && <pre className="code soft">{item.output}</pre>}
        </div>
      );
    case "output":
      return (
        <p className="output">
          <span className="soft mono">{item.node}</span> <Value value={item.value} />
        </p>
      );
    case "error":
      return <ErrorItemView code={item.code} message={item.message} eventId={item.eventIds[0] ?? ""} />;
    case "compaction":
      return (
        <details className="rule">
          <summary>Earlier events were summarized</summary>
          <p>{item.text}</p>
        </details>
      );
    case "retry":
      return <p className="rule">Retried from here</p>;
    case "rewind":
      return <p className="rule">Rewound to before run {item.runId}</p>;
  }
});

function AgentText({ item }: { item: TextItem }) {
  return (
    <div className="agent-text">
      <div className="agent-words">
        {item.text !== "" && (item.isStreaming ? <StreamingText text={item.text} /> : <Markdown text={item.text} />)}
        <Files parts={item.files} />
        {item.isCutOff && <p className="soft">Cut off here.</p>}
      </div>
      {!item.isStreaming && <FeedbackButtons eventId={item.eventIds[0] ?? ""} />}
    </div>
  );
}

const REWIND = "Take the session back to before this message? What follows stays in the log, but agents no longer see it.";

function UserText({ item }: { item: TextItem }) {
  const { runAgain, rewind } = useChat();
  const [draft, setDraft] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const eventId = item.eventIds[0] ?? "";

  async function resend() {
    setBusy(true);
    try {
      await runAgain(eventId, [...item.files, { text: draft ?? "" }]);
    } finally {
      setBusy(false);
    }
  }

  if (draft !== null) {
    return (
      <form
        className="user-text editing"
        aria-label="Edit the message"
        onSubmit={(event) => {
          event.preventDefault();
          void resend();
        }}
      >
        <textarea className="textarea" aria-label="Message" autoFocus rows={3} value={draft} onChange={(event) => setDraft(event.target.value)} />
        <div className="buttons">
          <button type="submit" className="button primary" disabled={isBusy}>
            Send in a fork
          </button>
          <button type="button" className="button quiet" onClick={() => setDraft(null)}>
            Cancel
          </button>
        </div>
      </form>
    );
  }
  return (
    <div className="user-text">
      <div className="user-bubble">
        {item.text}
        <Files parts={item.files} />
      </div>
      {item.isSteering ? (
        <span className="soft">The run read this here:</span>
      ) : (
        <button type="button" className="button quiet small reveal" title="Edit and send again in a fork" onClick={() => setDraft(item.text)}>
          <Pencil size={14} aria-hidden="true" />
          <span className="hidden">Edit and send again in a fork</span>
        </button>
      )}
      {!item.isSteering && (
        <button type="button" className="button quiet small reveal" title="Rewind to before this message" onClick={() => confirm(REWIND) && void rewind(eventId)}>
          <Undo2 size={14} aria-hidden="true" />
          <span className="hidden">Rewind to before this message</span>
        </button>
      )}
    </div>
  );
}

function Files({ parts }: { parts: readonly Part[] }) {
  if (parts.length === 0) return null;
  return (
    <ul className="attachments">
      {parts.map((part, index) => {
        const { mimeType = "", displayName } = part.inlineData ?? part.fileData ?? {};
        const name = displayName || part.fileData?.fileUri || mimeType || "file";
        const data = part.inlineData?.data;
        const source = data === undefined ? null : `data:${mimeType};base64,${data}`;
        return (
          <li key={`${name}:${index}`} className="attachment">
            {source !== null && mimeType.startsWith("image/") && <img src={source} alt={name} />}
            {source !== null && mimeType.startsWith("audio/") && <audio src={source} controls aria-label={name} />}
            <span className="attachment-name" title={name}>
              {name}
            </span>
          </li>
        );
      })}
    </ul>
  );
}

function StateChips({ item }: { item: StateItem }) {
  const { open } = useChat();
  return (
    <ul className="chips" aria-label="State changes">
      {item.changes.map(({ key, before, after }) => (
        <li key={key}>
          <button type="button" className="chip mono" title="Show the state" onClick={() => open(item.eventIds[0] ?? "", "state")}>
            <span className="soft">{key}:</span> {before !== undefined && <del>{short(before)}</del>}
            {before !== undefined && " → "}
            {after === REMOVED ? <em>removed</em> : short(after)}
          </button>
        </li>
      ))}
    </ul>
  );
}

function short(value: unknown): string {
  const text = JSON.stringify(value) ?? "";
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}

const IMAGE = /\.(png|jpe?g|gif|webp|avif|svg)$/i;

function Artifact({ item }: { item: ArtifactItem }) {
  const { place } = useChat();
  const path = item.name.split("/").map(encodeURIComponent).join("/");
  const href = `${SERVER}${sessionPath(place)}/artifacts/${path}/versions/${item.version}/content`;
  return (
    <a className="chip artifact" href={href} download={item.name.split("/").at(-1)}>
      {IMAGE.test(item.name) ? <img src={href} alt={item.name} loading="lazy" /> : <FileText size={14} aria-hidden="true" />}
      {item.name} <span className="soft">version {item.version}</span>
    </a>
  );
}

/** One line of what went wrong. eventId: of an event of the failed run. */
export function ErrorItemView({ code, message, eventId }: { code: string; message: string; eventId: string }) {
  const { open, runAgain } = useChat();
  const [first = "", ...rest] = message.split("\n");
  return (
    <div className="error-line">
      <TriangleAlert size={16} aria-hidden="true" />
      <div className="spread">
        {first || "The run failed"} <code className="soft">{code}</code>
        {rest.length > 0 && (
          <details>
            <summary>Details</summary>
            <pre className="code">{rest.join("\n")}</pre>
          </details>
        )}
      </div>
      <button type="button" className="button small" onClick={() => open(eventId)}>
        Details
      </button>
      <button type="button" className="button small" onClick={() => void runAgain(eventId, null)}>
        <RotateCcw size={14} aria-hidden="true" />
        Run again in a fork
      </button>
    </div>
  );
}

/** Columns on wide pages, at most four, else tabs; one below the other on narrow ones. */
function Branches({ item }: { item: BranchesItem }) {
  const [chosen, setChosen] = useState(0);
  const isTabs = item.branches.length > 4;
  const shown = isTabs ? item.branches.slice(chosen, chosen + 1) : item.branches;
  return (
    <div className="branches">
      {isTabs && (
        <div className="tabs" role="group" aria-label="Parallel branches">
          {item.branches.map((branch, index) => (
            <button key={branch.key} type="button" className="tab" aria-pressed={index === chosen} onClick={() => setChosen(index)}>
              {branch.name}
            </button>
          ))}
        </div>
      )}
      <div className="columns" style={{ "--columns": shown.length } as React.CSSProperties}>
        {shown.map((branch) => (
          <section key={branch.key} className="column" aria-label={`Branch ${branch.name}`} style={{ borderColor: agentColor(branch.name) }}>
            <AgentName name={branch.name} />
            {branch.items.map((one) => (
              <ItemView key={one.key} item={one} />
            ))}
          </section>
        ))}
      </div>
    </div>
  );
}
