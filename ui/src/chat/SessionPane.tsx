import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useLocation, useNavigate, useSearch } from "@tanstack/react-router";
import type { Content, JsonObject, Part, Run } from "greenroom-client";
import { Suspense, lazy, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { DEFAULT_USER, type SessionPlace, client, listApps } from "../api";
import { ErrorLine } from "../components/ErrorLine";
import { titleKey } from "../frame/SessionTitle";
import { reload } from "../reload";
import { STEERING } from "../timeline/items";
import { objectOf, textOf } from "../timeline/requests";
import type { Timeline } from "../timeline/model";
import { Composer } from "./Composer";
import { ConnectionDot } from "./ConnectionDot";
import { Layout } from "./Layout";
import { ResizablePane } from "./ResizablePane";
import { TimelineView } from "./TimelineView";
import { type Strategy, answerCall, isStreaming, runAgain, startRun } from "./actions";
import { type ChatActions, ChatContext, OutputsContext } from "./context";
import { useKeys } from "./useKeys";
import { useSession } from "./useSession";

const LiveControls = lazy(() => import("../live/LiveControls"));
const Inspector = lazy(() => import("../inspector/Inspector"));

type Sent = { readonly runId: string; readonly text: string };

/** A session: its timeline, the composer and, of the chosen event, the inspector. */
export function SessionPane({ place }: { place: SessionPlace }) {
  const { app, user, session } = place;
  const { feed, snapshot } = useSession(place);
  const { timeline, connection } = snapshot;
  const search = useSearch({ strict: false }) as { event?: string; tab?: string };
  const navigate = useNavigate();
  const [sent, setSent] = useState<readonly Sent[]>([]);
  const [error, setError] = useState<unknown>(null);
  const { talks } = useLocation({ select: ({ state }) => state });
  const [isTalking, setTalking] = useState(talks === true);
  useEffect(() => {
    // A reload must not open the microphone again.
    if (talks) void navigate({ to: "/apps/$app/sessions/$session", params: { app, session }, search: user === DEFAULT_USER ? {} : { user }, state: {}, replace: true });
  }, [talks, navigate, app, user, session]);
  const sender = useRef<((content: Content) => void) | null>(null);
  const apps = useQuery({ queryKey: ["apps"], queryFn: listApps });
  const canTalk = apps.data?.find((one) => one.name === app)?.isLive === true;
  const base = useMemo(() => (user === DEFAULT_USER ? {} : { user }), [user]);

  const open = useCallback(
    (event: string | null, tab?: string) => {
      const chosen = event === null ? {} : { event, tab: tab ?? search.tab };
      const wanted = { ...base, ...chosen };
      void navigate({ to: "/apps/$app/sessions/$session", params: { app, session }, search: wanted, replace: search.event !== undefined && event !== null });
    },
    [app, session, base, navigate, search.tab, search.event],
  );

  const actions: ChatActions = useMemo(() => {
    async function catching(action: () => Promise<void>) {
      setError(null);
      try {
        await action();
      } catch (failure) {
        setError(failure);
      }
    }
    return {
      place: { app, user, session },
      open: (eventId, tab) => open(eventId, tab),
      answer: async (callId: string, name: string, response: JsonObject) =>
        feed.add(await answerCall({ app, user, session }, callId, name, response, isStreaming())),
      runAgain: (eventId: string, parts: readonly Part[] | null) =>
        catching(async () => {
          const run = await runAgain({ app, user, session }, eventId, parts, isStreaming());
          await navigate({ to: "/apps/$app/sessions/$session", params: { app, session: run.sessionId }, search: base });
        }),
      retry: (runId: string, inFork: boolean) =>
        catching(async () => {
          const run = await client.retryRun(runId, { fork: inFork });
          if (inFork) await navigate({ to: "/apps/$app/sessions/$session", params: { app, session: run.sessionId }, search: base });
          else feed.add(run);
        }),
      rewind: (eventId: string) =>
        catching(async () => {
          const { events, byId } = feed.getSnapshot().timeline;
          const event = events[byId.get(eventId) ?? -1]?.event;
          if (event !== undefined) await client.rewindSession({ app, user, session }, event.invocationId);
        }),
      cancel: (runId: string) =>
        catching(async () => {
          feed.add(await client.cancelRun(runId));
          setSent((before) => before.filter((one) => one.runId !== runId));
        }),
    };
  }, [app, user, session, base, feed, navigate, open]);

  useTitle(place, timeline);
  useActiveRuns(app, timeline);
  const active =
    timeline.runs.find((run) => run.status === "running") ??
    timeline.runs.find((run) => run.status === "queued" && run.startAt === null && run.steeredInto === null);
  const steering = new Set(timeline.runs.flatMap((run) => (run.steeredInto === null ? [] : [run.id])));
  const pending = sent.filter(({ runId }) => !isInLog(timeline, runId));

  async function send(parts: readonly Part[], streaming: boolean, strategy: Strategy) {
    setError(null);
    if (sender.current !== null) return sender.current({ role: "user", parts: [...parts] });
    try {
      const run: Run = await startRun(place, parts, streaming, strategy);
      feed.add(run);
      setSent((before) => [...before, { runId: run.id, text: parts.map((part) => part.text ?? part.inlineData?.displayName ?? "").join("\n") }]);
    } catch (failure) {
      setError(failure);
      throw failure;
    }
  }

  const eventIds = useMemo(() => timeline.runs.flatMap((run) => run.items.flatMap((item) => item.eventIds[0] ?? [])), [timeline]);
  const cursor = useKeys({ eventIds, chosen: search.event ?? null, open });
  const chosen = search.event === undefined ? undefined : timeline.events[timeline.byId.get(search.event) ?? -1];
  return (
    <ChatContext.Provider value={actions}>
      <div className={`session${chosen === undefined ? "" : " with-inspector"}`}>
        <Layout app={app} user={user} session={session} head={<ConnectionDot connection={connection} />}>
          <OutputsContext value={timeline.outputs}>
            <TimelineView timeline={timeline} chosen={search.event ?? null} cursor={cursor}>
              {snapshot.error !== null && <ErrorLine error={snapshot.error} />}
              {connection === "live" && timeline.runs.length === 0 && pending.length === 0 && <p className="soft">No events yet.</p>}
              {pending.map(({ runId, text }) => (
                <div key={runId} className="item">
                  <div className="user-text">
                    <div className="user-bubble waiting">{text}</div>
                  </div>
                  {active !== undefined && active.id !== runId && !steering.has(runId) && <p className="soft queued">Queued: it starts when the runs before it have ended.</p>}
                </div>
              ))}
            </TimelineView>
          </OutputsContext>
          {error !== null && <ErrorLine error={error} />}
          {isTalking && (
            <Suspense fallback={<p className="soft">Loading…</p>}>
              <LiveControls
                place={place}
                onSender={(send) => (sender.current = send)}
                onEnd={(failure) => {
                  setTalking(false);
                  if (failure !== null) setError(new Error(failure));
                }}
              />
            </Suspense>
          )}
          <Composer
            talk={canTalk && !isTalking ? () => setTalking(true) : null}
            activeRun={isTalking ? null : (active?.id ?? null)}
            placeholder={`Message ${app}`}
            send={send}
            stop={() => void (active && actions.cancel(active.id))}
          />
        </Layout>
        {chosen !== undefined && (
          <ResizablePane>
            <Suspense fallback={<p className="soft page">Loading…</p>}>
              <Inspector
                place={place}
                timeline={timeline}
                chosen={chosen}
                tab={search.tab ?? ""}
                setTab={(tab) => open(chosen.event.id, tab)}
                choose={(eventId) => open(eventId)}
                close={() => open(null)}
              />
            </Suspense>
          </ResizablePane>
        )}
      </div>
    </ChatContext.Provider>
  );
}

function isInLog(timeline: Timeline, runId: string): boolean {
  return timeline.byId.has(STEERING + runId) || timeline.runs.some((run) => run.id === runId && run.items.length > 0);
}

/** Has the list of sessions read the runs again when one of this session starts, begins to wait or ends. */
function useActiveRuns(app: string, timeline: Timeline): void {
  const queries = useQueryClient();
  const active = timeline.runs.filter(({ status }) => status === "queued" || status === "running" || status === "waiting");
  const key = active.map((run) => `${run.key} ${run.status}`).join("\n");
  useEffect(() => {
    void reload(queries, ["active runs", app]);
  }, [queries, app, key]);
}

/** Keeps the cached title up to date with the log. */
function useTitle({ app, user, session }: SessionPlace, timeline: Timeline): void {
  const queries = useQueryClient();
  const last = timeline.events.findLast(({ event }) => "__session_metadata__" in (event.actions.stateDelta ?? {}));
  const title = last === undefined ? null : textOf(objectOf(last.event.actions.stateDelta?.["__session_metadata__"]).displayName);
  useEffect(() => {
    if (title === null) return;
    const queryKey = titleKey({ app, user, session });
    // A request for the first title that is still under way would replace the later one.
    void queries.cancelQueries({ queryKey }).then(() => queries.setQueryData(queryKey, title || session));
  }, [queries, app, user, session, title]);
}
