import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import type { AppInfo, Part } from "greenroom-client";
import { useState } from "react";
import { DEFAULT_USER, client } from "../api";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { reload } from "../reload";
import { Composer } from "./Composer";
import { Layout } from "./Layout";
import { createSession, isStreaming, startRun } from "./actions";

const TITLE_LENGTH = 60;

/** Makes a session with its first message. */
export function NewSession({ app, user, info }: { app: string; user: string; info: AppInfo | undefined }) {
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [error, setError] = useState<unknown>(null);

  async function send(parts: readonly Part[], streaming: boolean) {
    setError(null);
    try {
      const place = await createSession(app, user);
      const title = parts.map((part) => part.text ?? "").join(" ").trim().split("\n")[0]?.slice(0, TITLE_LENGTH);
      if (title) await client.patchSession(place, { title });
      await startRun(place, parts, streaming);
      await navigate({ to: "/apps/$app/sessions/$session", params: { app, session: place.session }, search: user === DEFAULT_USER ? {} : { user } });
      void reload(queries, ["sessions", app]);
    } catch (failure) {
      setError(failure);
      throw failure;
    }
  }

  async function talk() {
    setError(null);
    try {
      const { session } = await createSession(app, user);
      const search = user === DEFAULT_USER ? {} : { user };
      await navigate({ to: "/apps/$app/sessions/$session", params: { app, session }, search, state: { talks: true } });
      void reload(queries, ["sessions", app]);
    } catch (failure) {
      setError(failure);
    }
  }

  const messages = ["What can you do?", "Show me an example of what you are good at.", "Which tools do you have, and when do you use them?"];
  return (
    <Layout app={app} user={user} session="" head={<span className="soft">New session</span>}>
      <main className="chat-empty">
        <Empty title={app}>
          {info?.error ? <ErrorLine error={info.error} /> : <p>{info?.description || "Send a message to begin a session."}</p>}
          {!info?.error && (
            <ul className="suggestions" aria-label="Messages to try">
              {messages.map((text) => (
                <li key={text}>
                  <button type="button" className="button" onClick={() => void send([{ text }], isStreaming()).catch(() => undefined)}>
                    {text}
                  </button>
                </li>
              ))}
            </ul>
          )}
        </Empty>
      </main>
      {error !== null && <ErrorLine error={error} />}
      <Composer activeRun={null} placeholder={`Message ${app}`} send={send} stop={() => undefined} talk={info?.isLive ? () => void talk() : null} />
    </Layout>
  );
}
