import { Link } from "@tanstack/react-router";
import type { LogLine } from "greenroom-client";
import { useEffect, useState } from "react";
import { DEFAULT_USER, SERVER, call } from "../api";
import { ErrorLine } from "../components/ErrorLine";
import { Time } from "../components/Time";

const MOST_LINES = 1000;
const NAMES: { readonly [level: string]: string } = { warning: "wait", error: "bad", critical: "bad" };

/** Log lines of the app's runs, newest first, followed while it is open. */
export function AppLog({ app }: { app: string }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details className="app-log" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Log</summary>
      {isOpen && <Lines app={app} />}
    </details>
  );
}

function Lines({ app }: { app: string }) {
  const [lines, setLines] = useState<readonly LogLine[]>([]);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    const path = `/apps/${encodeURIComponent(app)}/logs`;
    const stream = new EventSource(SERVER + path);
    stream.onmessage = (message: MessageEvent<string>) => {
      const line = JSON.parse(message.data) as LogLine;
      setLines((before) => [line, ...before].slice(0, MOST_LINES));
    };
    stream.onerror = () => {
      if (stream.readyState === EventSource.CLOSED) call("GET", `${path}?limit=1`).catch(setError);
    };
    return () => stream.close();
  }, [app]);
  if (error !== null) return <ErrorLine error={error} />;
  if (lines.length === 0) return <p className="soft">Nothing has been logged in this app's runs since the server started.</p>;
  return (
    <ol className="log-lines" tabIndex={0} aria-label="Lines of the log, newest first">
      {lines.map((line) => (
        <li key={line.number}>
          <Time at={line.time} /> <span className={`status ${NAMES[line.level] ?? ""}`}>{line.level}</span>{" "}
          <span className="soft">{line.logger}</span>{" "}
          <Link
            to="/apps/$app/sessions/$session"
            params={{ app, session: line.sessionId }}
            search={line.userId === DEFAULT_USER ? {} : { user: line.userId }}
          >
            {line.sessionId}
          </Link>
          <pre className="wrapped">
            {line.message}
            {line.error != null && `\n${line.error}`}
          </pre>
        </li>
      ))}
    </ol>
  );
}
