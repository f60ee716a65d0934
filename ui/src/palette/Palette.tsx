import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams, useRouterState, useSearch } from "@tanstack/react-router";
import type { Event } from "greenroom-client";
import { Dialog } from "radix-ui";
import { type KeyboardEvent, useDeferredValue, useEffect, useId, useState } from "react";
import { BASE, DEFAULT_USER, SERVER, type SessionPlace, client, listApps, titleOf } from "../api";
import { ErrorLine } from "../components/ErrorLine";
import { ago } from "../components/Time";
import { curl } from "../inspector/snippets";
import { setTheme, theme } from "../theme";
import { userSearch } from "../user";
import { type Choice, ranked } from "./ranking";
import "./palette.css";

const PAGES = [
  ["Chat", "/"],
  ["Runs", "/runs"],
  ["Statistics", "/statistics"],
  ["Inbox", "/inbox"],
  ["Schedules", "/schedules"],
  ["Compare two runs", "/compare"],
  ["Agents", "/agents"],
  ["Versions", "/versions"],
  ["Evaluate", "/evaluate"],
  ["Settings", "/settings"],
] as const;

const KEYS: readonly (readonly [readonly string[], string])[] = [
  [["⌘K", "Ctrl K"], "Command palette"],
  [["j", "k"], "Next and previous event of a session, or request of the inbox"],
  [["Enter"], "Open the event in the inspector"],
  [["Esc"], "Close the inspector, or leave the message"],
  [["y", "n"], "In the inbox: allow, refuse"],
  [["/"], "Write a message"],
  [["←", "→"], "In tabs: the next one; in a trace, a graph or a plot: move"],
  [["+", "-", "0"], "In a trace or a graph: zoom, and show all"],
  [["?"], "These shortcuts"],
];

/** The command palette; `close` is called when it is dismissed. showsKeys: begins with the list of shortcuts. */
export default function Palette({ close, showsKeys = false }: { close: () => void; showsKeys?: boolean }) {
  const [isHelp, setHelp] = useState(showsKeys);
  return (
    <Dialog.Root open onOpenChange={(isOpen) => !isOpen && close()}>
      <Dialog.Portal>
        <Dialog.Overlay className="palette-overlay" />
        <Dialog.Content className="palette" aria-describedby={undefined}>
          {isHelp ? <Help /> : <Commands close={close} help={() => setHelp(true)} />}
        </Dialog.Content>
      </Dialog.Portal>
    </Dialog.Root>
  );
}

function Help() {
  return (
    <>
      <Dialog.Title className="palette-title">Keyboard shortcuts</Dialog.Title>
      <dl className="palette-keys">
        {KEYS.map(([keys, action]) => (
          <div key={action}>
            <dt>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{action}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}

function Commands({ close, help }: { close: () => void; help: () => void }) {
  const [text, setText] = useState("");
  const query = useDeferredValue(text);
  const [at, setAt] = useState(0);
  const [error, setError] = useState<unknown>(null);
  const choices = ranked(query, useChoices(query, help));
  const list = useId();
  const active = Math.min(at, choices.length - 1);
  useEffect(() => {
    document.getElementById(`${list}-${active}`)?.scrollIntoView({ block: "nearest" });
  }, [active, list]);

  async function run(choice: Choice | undefined) {
    if (choice === undefined) return;
    try {
      await choice.act();
      if (choice.stays !== true) close();
    } catch (reason) {
      setError(reason);
    }
  }
  function onKeyDown(event: KeyboardEvent) {
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (by !== 0) {
      event.preventDefault();
      setAt((active + by + choices.length) % Math.max(choices.length, 1));
    } else if (event.key === "Enter") {
      event.preventDefault();
      void run(choices[active]);
    }
  }
  return (
    <>
      <Dialog.Title className="hidden">Commands</Dialog.Title>
      <input
        className="palette-input"
        role="combobox"
        aria-label="Search for apps, sessions, runs, events, pages and actions"
        aria-expanded="true"
        aria-controls={list}
        aria-activedescendant={choices.length === 0 ? undefined : `${list}-${active}`}
        placeholder="Go to or do…"
        autoFocus
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
          setError(null);
        }}
        onKeyDown={onKeyDown}
      />
      {error !== null && <ErrorLine error={error} />}
      <ul className="palette-list" id={list} role="listbox" aria-label="Commands">
        {choices.map((choice, index) => (
          <li
            key={choice.id}
            id={`${list}-${index}`}
            role="option"
            aria-selected={index === active}
            className="palette-item"
            onMouseMove={() => setAt(index)}
            onClick={() => void run(choice)}
          >
            <span className="palette-kind soft">{choice.kind}</span>
            <span className="cut">{choice.name}</span>
            <span className="spread" />
            {choice.hint !== undefined && <span className="soft cut">{choice.hint}</span>}
          </li>
        ))}
      </ul>
      {choices.length === 0 && <p className="palette-none soft">Nothing has "{query}" in its name.</p>}
    </>
  );
}

/** All choices at the page that is open. query: what the server searches sessions for. */
function useChoices(query: string, help: () => void): readonly Choice[] {
  const navigate = useNavigate();
  const { app = "", session = "" } = useParams({ strict: false });
  const { user = DEFAULT_USER, event = "" } = useSearch({ strict: false }) as { user?: string; event?: string };
  const href = useRouterState({ select: (state) => state.location.href });
  const place: SessionPlace = { app, user, session };
  const apps = useQuery({ queryKey: ["apps"], queryFn: listApps });
  const sessions = useQuery({
    queryKey: ["sessions", app, user, "palette", query],
    queryFn: () => client.listSessions(app, user, { limit: 50, text: query || undefined }),
    enabled: app !== "",
    placeholderData: (previous) => previous,
  });
  const runs = useQuery({
    queryKey: ["runs", "palette"],
    queryFn: async () => (await client.listRuns({ limit: 100 })).runs,
  });
  const log = useQuery({
    queryKey: ["palette log", app, user, session],
    queryFn: () => client.listEvents(place, { limit: 1000 }),
    enabled: session !== "",
  });
  const open = (where: SessionPlace, chosen?: string) =>
    navigate({
      to: "/apps/$app/sessions/$session",
      params: { app: where.app, session: where.session },
      search: { ...userSearch(where.user), ...(chosen === undefined ? {} : { event: chosen }) },
    });

  const choices: Choice[] = PAGES.map(([name, to]) => ({ id: `page ${to}`, kind: "Page", name, act: () => navigate({ to }) }));
  if (app !== "") {
    choices.push({
      id: "new",
      kind: "Action",
      name: "New session",
      hint: app,
      act: async () => open({ app, user, session: (await client.createSession(app, user)).id }),
    });
  }
  if (session !== "") {
    const active = (runs.data ?? []).filter((run) => run.sessionId === session && (run.status === "running" || run.status === "queued"));
    choices.push(
      {
        id: "fork",
        kind: "Action",
        name: event === "" ? "Fork this session" : "Fork here",
        hint: event === "" ? "from its end" : "after the chosen event",
        act: async () => {
          const body = event === "" ? {} : { eventId: event };
          await open({ ...place, session: (await client.forkSession(place, body)).id });
        },
      },
      ...active.map(
        (run): Choice => ({
          id: `stop ${run.id}`,
          kind: "Action",
          name: "Stop the run",
          hint: run.id,
          act: () => client.cancelRun(run.id),
        }),
      ),
    );
    const chosen = log.data?.events.find((one) => one.id === event) ?? log.data?.events.findLast((one) => one.author === "user");
    if (chosen !== undefined) {
      const logged = log.data?.events.map((one, index) => ({ seq: index + 1, event: one })) ?? [];
      choices.push({
        id: "curl",
        kind: "Action",
        name: "Copy as curl",
        hint: "sends the message again",
        act: () => navigator.clipboard.writeText(curl(place, logged, chosen, SERVER)),
      });
    }
  }
  choices.push(
    { id: "link", kind: "Action", name: "Copy a link to this page", act: () => navigator.clipboard.writeText(new URL(BASE.replace(/\/$/, "") + href, location.origin).href) },
    {
      id: "theme",
      kind: "Action",
      name: "Switch the theme",
      hint: `now ${theme()}`,
      act: () => setTheme(theme() === "dark" ? "light" : "dark"),
    },
    { id: "keys", kind: "Action", name: "Keyboard shortcuts", hint: "?", act: help, stays: true },
  );
  for (const { name, description } of apps.data ?? []) {
    choices.push({
      id: `app ${name}`,
      kind: "App",
      name,
      hint: description ?? "",
      act: () => navigate({ to: "/apps/$app", params: { app: name }, search: userSearch() }),
    });
  }
  for (const one of sessions.data?.sessions ?? []) {
    choices.push({
      id: `session ${one.id}`,
      kind: "Session",
      name: titleOf(one),
      hint: ago(one.lastUpdateTime),
      isFound: true,
      act: () => open({ app, user, session: one.id }),
    });
  }
  for (const run of runs.data ?? []) {
    choices.push({
      id: `run ${run.id}`,
      kind: "Run",
      name: `${run.appName} / ${run.sessionId}`,
      hint: `${run.status} · ${run.id}`,
      act: () => open({ app: run.appName, user: run.userId, session: run.sessionId }),
    });
  }
  for (const one of log.data?.events ?? []) {
    choices.push({ id: `event ${one.id}`, kind: "Event", name: titleOfEvent(one), hint: one.id, act: () => open(place, one.id) });
  }
  return choices;
}

function titleOfEvent(event: Event): string {
  const said = (event.content?.parts ?? []).map((part) => {
    if (part.functionCall !== undefined) return `calls ${part.functionCall.name}`;
    if (part.functionResponse !== undefined) return `${part.functionResponse.name} returns`;
    return part.text ?? "a file";
  });
  return `${event.author}: ${said.join(" ").slice(0, 200) || "changes the state"}`;
}
