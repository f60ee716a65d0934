import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import type { Run } from "greenroom-client";
import { Plus, Trash2 } from "lucide-react";
import { memo, useDeferredValue, useState } from "react";
import { DEFAULT_USER, client, titleOf } from "../api";
import { ErrorLine } from "../components/ErrorLine";
import { Status } from "../components/Status";
import { Time } from "../components/Time";
import { Waiting } from "../components/Waiting";
import { reload } from "../reload";

const REFRESH_MS = 10_000;
const MOST_ACTIVE = 200;
const NONE: ReadonlyMap<string, Run> = new Map();

/** By session its running run, or else its newest one that is queued or waits. */
function useActiveRuns(app: string, user: string): ReadonlyMap<string, Run> {
  const runs = useQuery({
    queryKey: ["active runs", app, user],
    queryFn: async () => {
      const query = { app_name: app, user_id: user, status: ["queued", "running", "waiting"], limit: MOST_ACTIVE } as const;
      const { runs: found = [] } = await client.listRuns(query);
      const byStatus = [...found.filter((run) => run.status !== "running").reverse(), ...found.filter((run) => run.status === "running")];
      return new Map(byStatus.map((run) => [run.sessionId, run]));
    },
    refetchInterval: REFRESH_MS,
  });
  return runs.data ?? NONE;
}

type SessionsProps = { readonly app: string; readonly user: string; readonly session: string; readonly onChoose: () => void };

/** A user's sessions, newest first, with a search in titles and texts. */
export const Sessions = memo(function Sessions({ app, user, session, onChoose }: SessionsProps) {
  const [text, setText] = useState("");
  const wanted = useDeferredValue(text);
  const queries = useQueryClient();
  const navigate = useNavigate();
  const search = user === DEFAULT_USER ? {} : { user };
  const pages = useInfiniteQuery({
    queryKey: ["sessions", app, user, wanted],
    queryFn: ({ pageParam }) => client.listSessions(app, user, { limit: 50, text: wanted || undefined, page_token: pageParam || undefined }),
    initialPageParam: "",
    getNextPageParam: (page) => page.next,
    refetchInterval: REFRESH_MS,
  });
  const active = useActiveRuns(app, user);
  const sessions = pages.data?.pages.flatMap((page) => page.sessions) ?? [];

  async function remove(id: string, title: string) {
    if (!confirm(`Delete the session “${title}” and its events?`)) return;
    await client.deleteSession({ app, user, session: id });
    await reload(queries, ["sessions", app]);
    if (id === session) void navigate({ to: "/apps/$app", params: { app }, search });
  }

  return (
    <nav className="sessions" aria-label="Sessions">
      <div className="sessions-head">
        <input
          className="input spread"
          type="search"
          aria-label="Search sessions"
          placeholder="Search"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <Link className="button" to="/apps/$app" params={{ app }} search={search} onClick={onChoose} title="New session">
          <Plus size={16} aria-hidden="true" />
          <span className="hidden">New session</span>
        </Link>
      </div>
      {pages.error !== null && <ErrorLine error={pages.error} />}
      <ul className="sessions-list">
        {sessions.map((one) => (
          <li key={one.id} className={one.id === session ? "chosen" : ""}>
            <Link to="/apps/$app/sessions/$session" params={{ app, session: one.id }} search={search} onClick={onChoose}>
              <span className="sessions-title" title={titleOf(one)}>
                {titleOf(one)}
              </span>
              <span className="soft">
                <Time at={one.lastUpdateTime} isRelative />
              </span>
              <ActiveRun run={active.get(one.id)} />
            </Link>
            <button type="button" className="button quiet small reveal" onClick={() => void remove(one.id, titleOf(one))}>
              <Trash2 size={14} aria-hidden="true" />
              <span className="hidden">Delete {titleOf(one)}</span>
            </button>
          </li>
        ))}
      </ul>
      {pages.data !== undefined && sessions.length === 0 && (
        <p className="soft sessions-none">{wanted === "" ? "No sessions yet." : "Nothing found."}</p>
      )}
      {pages.hasNextPage && (
        <button type="button" className="button quiet" onClick={() => void pages.fetchNextPage()}>
          More
        </button>
      )}
    </nav>
  );
});

function ActiveRun({ run }: { run: Run | undefined }) {
  if (run === undefined) return null;
  return (
    <span className="sessions-run">
      <Status status={run.status}>{(run.status === "waiting" || run.startAt != null) && <Waiting run={run} />}</Status>
    </span>
  );
}
