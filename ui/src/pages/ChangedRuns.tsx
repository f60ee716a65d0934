import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ListWaitingRunsResponse, Run, WaitingRun } from "greenroom-client";
import { DEFAULT_USER, call } from "../api";
import "./pages.css";

const REFRESH_MS = 30_000; // code may have been reloaded
const MOST_APPS = 10;
const CONSEQUENCES: Record<string, string> = {
  continue: "An answer continues it with the present code.",
  refuse: "An answer is refused.",
  pin: "An answer continues it with its earlier version if the server has it, and is refused otherwise.",
};

async function fetchChanged(app: string): Promise<readonly WaitingRun[]> {
  try {
    const page = await call<ListWaitingRunsResponse>("GET", `/apps/${encodeURIComponent(app)}/waiting-runs?limit=100`);
    return (page.waitingRuns ?? []).filter((waiting) => waiting.difference != null);
  } catch {
    return []; // the app doesn't load, or the key has no such permission: other pages say so
  }
}

/** The waiting runs that began with another version of their app, and would differ in the present one. */
export function ChangedRuns({ active }: { active: readonly Run[] }) {
  const waiting = active.filter((run) => run.status === "waiting").map((run) => run.appName);
  const apps = [...new Set(waiting)].sort().slice(0, MOST_APPS);
  const changed = useQuery({
    queryKey: ["runs", "changed", apps],
    queryFn: async () => (await Promise.all(apps.map(fetchChanged))).flat(),
    enabled: apps.length > 0,
    refetchInterval: REFRESH_MS,
  });
  if (apps.length === 0 || changed.data === undefined || changed.data.length === 0) return null;
  const count = changed.data.length;
  return (
    <details className="changed-runs">
      <summary>
        {count === 1
          ? "1 waiting run would differ with the present code of its app"
          : `${count} waiting runs would differ with the present code of their apps`}
      </summary>
      <ul aria-label="Waiting runs that differ">
        {changed.data.map(({ run, waitsFor, difference, onVersionChange }) => (
          <li key={run.id}>
            <Link
              to="/apps/$app/sessions/$session"
              params={{ app: run.appName, session: run.sessionId }}
              search={run.userId === DEFAULT_USER ? {} : { user: run.userId }}
            >
              {run.appName}, {run.sessionId}
            </Link>{" "}
            waits for {waitsFor?.join(", ")}. Event {difference?.seq}: {difference?.text}.{" "}
            <span className="soft">{CONSEQUENCES[onVersionChange ?? "continue"]}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}
