import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import type { Run, Schedule, ScheduleRun } from "greenroom-client";
import { CalendarClock, CircleCheck, CircleSlash, Pause, Play, Plus, TriangleAlert, Zap } from "lucide-react";
import { useState } from "react";
import { DEFAULT_USER, client, listApps } from "../api";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { Moment } from "../components/Time";
import { reload } from "../reload";
import { ScheduleForm } from "../schedules/ScheduleForm";
import { LOCAL_ZONE, MISSED, OVERLAPS, inZone, messageOf, timingOf } from "../schedules/schedules";
import type { Search } from "./filters";
import "./pages.css";
import "./schedules.css";

const REFRESH_MS = 10_000;
const PAGE = 1000;
const NEW = "new";

/** The schedules of an app: their next times, and the history of each. `?schedule=new` is a new one. */
export function SchedulesPage() {
  const { app: wantedApp, schedule: chosenId } = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const queries = useQueryClient();
  const apps = useQuery({ queryKey: ["apps"], queryFn: listApps });
  const app = wantedApp ?? apps.data?.find((one) => one.error == null)?.name;
  const schedules = useQuery({
    queryKey: ["schedules", app],
    queryFn: () => client.listSchedules(app ?? "", { limit: PAGE }),
    enabled: app !== undefined,
    refetchInterval: REFRESH_MS,
  });
  const open = (id: string | undefined) => void navigate({ to: "/schedules", search: { app, ...(id === undefined ? {} : { schedule: id }) } });

  async function created(schedule: Schedule) {
    await reload(queries, ["schedules", app]);
    open(schedule.id);
  }

  const found = schedules.data?.schedules;
  return (
    <main className="page schedules">
      <div className="row">
        <h1 className="spread">Schedules</h1>
        {apps.data !== undefined && app !== undefined && (
          <select
            className="select"
            aria-label="App"
            value={app}
            onChange={(event) => void navigate({ to: "/schedules", search: { app: event.target.value } })}
          >
            {apps.data.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        )}
        {app !== undefined && chosenId !== NEW && (
          <button type="button" className="button" onClick={() => open(NEW)}>
            <Plus size={14} aria-hidden="true" />
            New schedule
          </button>
        )}
      </div>
      {schedules.isError && <ErrorLine error={schedules.error} />}
      {app !== undefined && chosenId === NEW && (
        <ScheduleForm app={app} save={(schedule) => client.createSchedule(app, schedule)} saved={created} cancel={() => open(undefined)} />
      )}
      {found === undefined && !schedules.isError && <p className="soft">Loading…</p>}
      {found?.length === 0 && chosenId !== NEW && (
        <Empty title="No schedules">
          <p>
            A schedule starts runs by the clock: by a cron expression, at an interval or once. Make one here, over HTTP, or in the app's code
            with <code>App(schedules=[…])</code>.
          </p>
        </Empty>
      )}
      {app !== undefined && found !== undefined && found.length > 0 && (
        <ul className="schedules-list" aria-label="Schedules">
          {found.map((schedule) => (
            <Row
              key={schedule.id}
              app={app}
              schedule={schedule}
              isChosen={schedule.id === chosenId}
              toggle={() => open(schedule.id === chosenId ? undefined : schedule.id)}
            />
          ))}
        </ul>
      )}
    </main>
  );
}

type RowProps = { readonly app: string; readonly schedule: Schedule; readonly isChosen: boolean; readonly toggle: () => void };

function Row({ app, schedule, isChosen, toggle }: RowProps) {
  const queries = useQueryClient();
  const refresh = () => Promise.all([reload(queries, ["schedules", app]), reload(queries, ["schedule runs", app, schedule.id])]);
  const act = useMutation({ mutationFn: (action: () => Promise<Schedule | Run>) => action(), onSettled: refresh });
  const isPaused = schedule.isPaused === true;
  const id = schedule.id ?? "";
  return (
    <li aria-current={isChosen ? "true" : undefined}>
      <div className="schedule-row">
        <button type="button" className="schedule-open" aria-expanded={isChosen} onClick={toggle}>
          <State schedule={schedule} />
          <code className="cut">{timingOf(schedule)}</code>
          <span className="schedule-message cut">{messageOf(schedule) || schedule.id}</span>
          <span className="schedule-next soft">
            <NextTime schedule={schedule} />
          </span>
        </button>
        <button type="button" className="button small" disabled={act.isPending} onClick={() => act.mutate(() => (isPaused ? client.resumeSchedule(app, id) : client.pauseSchedule(app, id)))}>
          {isPaused ? <Play size={14} aria-hidden="true" /> : <Pause size={14} aria-hidden="true" />}
          {isPaused ? "Resume" : "Pause"}
        </button>
        <button type="button" className="button small" disabled={act.isPending} onClick={() => act.mutate(() => client.runSchedule(app, id))}>
          <Zap size={14} aria-hidden="true" />
          Run now
        </button>
      </div>
      {act.isError && <ErrorLine error={act.error} />}
      {isChosen && <Detail app={app} schedule={schedule} left={toggle} refresh={refresh} />}
    </li>
  );
}

function State({ schedule }: { schedule: Schedule }) {
  const [Icon, tone, name] =
    schedule.isPaused === true
      ? ([Pause, "wait", "Paused"] as const)
      : schedule.nextAt == null
        ? ([CircleSlash, "idle", "Over"] as const)
        : ([CalendarClock, "ok", "Active"] as const);
  return (
    <span className={`status ${tone}`}>
      <Icon size={16} aria-hidden="true" />
      <span className="schedule-state">{name}</span>
    </span>
  );
}

/** In the time zone of the browser and, where it is another one, in that of the schedule. */
function NextTime({ schedule: { nextAt, cron, timeZone = "UTC", isPaused } }: { schedule: Schedule }) {
  if (nextAt == null) return isPaused === true ? null : "no further run";
  return (
    <>
      next: <Moment at={nextAt} />
      {cron != null && timeZone !== LOCAL_ZONE && ` (${inZone(nextAt, timeZone)})`}
    </>
  );
}

type DetailProps = { readonly app: string; readonly schedule: Schedule; readonly left: () => void; readonly refresh: () => Promise<unknown> };

function Detail({ app, schedule, left, refresh }: DetailProps) {
  const queries = useQueryClient();
  const [isEditing, setEditing] = useState(false);
  const remove = useMutation({
    mutationFn: () => client.deleteSchedule(app, schedule.id ?? ""),
    onSuccess: async () => {
      left();
      await reload(queries, ["schedules", app]);
    },
  });
  const isOfApp = schedule.isOfApp === true;
  if (isEditing) {
    return (
      <ScheduleForm
        app={app}
        schedule={schedule}
        save={(changed) => client.replaceSchedule(app, schedule.id ?? "", changed)}
        saved={async () => {
          await refresh();
          setEditing(false);
        }}
        cancel={() => setEditing(false)}
      />
    );
  }
  return (
    <section className="schedule-detail" aria-label={`Schedule ${schedule.id ?? ""}`}>
      <Facts app={app} schedule={schedule} />
      <div className="buttons">
        {!isOfApp && (
          <>
            <button type="button" className="button" onClick={() => setEditing(true)}>
              Edit
            </button>
            <button
              type="button"
              className="button danger"
              disabled={remove.isPending}
              onClick={() => confirm("Delete this schedule and its history? Its runs stay.") && remove.mutate()}
            >
              Delete
            </button>
          </>
        )}
        {isOfApp && <span className="soft">The app's code declares it: it is changed there.</span>}
      </div>
      {remove.isError && <ErrorLine error={remove.error} />}
      <History app={app} schedule={schedule} />
    </section>
  );
}

function Facts({ app, schedule }: { app: string; schedule: Schedule }) {
  const { timeZone = "UTC", nextAt, cron } = schedule;
  const times = useQuery({
    queryKey: ["schedule times", app, schedule.id, schedule.nextAt],
    queryFn: () => client.nextTimes(app, schedule),
    enabled: nextAt != null,
  });
  const later = times.data?.slice(1).map((at) => inZone(at, cron != null ? timeZone : LOCAL_ZONE)) ?? [];
  const facts = [
    ["Message", messageOf(schedule)],
    ["User", schedule.userId],
    ["Session", schedule.sessionId ?? "a new one for each run"],
    ["Time zone", cron != null ? timeZone : ""],
    ["At", schedule.at != null ? inZone(schedule.at, LOCAL_ZONE) : ""],
    ["Next run", nextAt != null ? [...new Set([inZone(nextAt, timeZone), inZone(nextAt, LOCAL_ZONE)])].join(" · ") : ""],
    ["Then", later.join(" · ")],
    ["From", schedule.startAt != null ? inZone(schedule.startAt, LOCAL_ZONE) : ""],
    ["Until", schedule.endAt != null ? inZone(schedule.endAt, LOCAL_ZONE) : ""],
    ["Jitter", (schedule.jitterSeconds ?? 0) > 0 ? `up to ${schedule.jitterSeconds} s` : ""],
    ["Missed times", MISSED[schedule.missed ?? "once"]],
    ["Unfinished run", OVERLAPS[schedule.overlap ?? (schedule.sessionId == null ? "allow" : "skip")]],
    ["Id", schedule.id ?? ""],
  ] as const;
  return (
    <dl className="schedule-facts">
      {facts
        .filter(([, value]) => value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

const OUTCOMES = {
  started: { icon: CircleCheck, tone: "ok", name: "Started" },
  missed: { icon: CircleSlash, tone: "wait", name: "Missed" },
  unfinished: { icon: CircleSlash, tone: "wait", name: "Skipped" },
  refused: { icon: TriangleAlert, tone: "bad", name: "Refused" },
} as const;

function History({ app, schedule }: { app: string; schedule: Schedule }) {
  const history = useQuery({
    queryKey: ["schedule runs", app, schedule.id],
    queryFn: () => client.listScheduleRuns(app, schedule.id ?? ""),
    refetchInterval: REFRESH_MS,
  });
  if (history.isError) return <ErrorLine error={history.error} />;
  if (history.data === undefined) return <p className="soft">Loading…</p>;
  if (history.data.length === 0) return <p className="soft">It has started no run yet.</p>;
  return (
    <ul className="schedule-history" aria-label="History">
      {history.data.map((entry) => (
        <Entry key={`${entry.dueAt} ${entry.at}`} app={app} userId={schedule.userId} entry={entry} />
      ))}
    </ul>
  );
}

function Entry({ app, userId, entry }: { app: string; userId: string; entry: ScheduleRun }) {
  const { icon: Icon, tone, name } = OUTCOMES[entry.outcome];
  return (
    <li className="row">
      <span className={`status ${tone}`}>
        <Icon size={14} aria-hidden="true" />
        {name}
      </span>
      <span>
        {entry.firstDueAt != null && (
          <>
            <Moment at={entry.firstDueAt} /> to{" "}
          </>
        )}
        <Moment at={entry.dueAt} />
      </span>
      <span className="soft">
        {entry.isManual === true && "by hand"}
        {entry.outcome === "missed" && "nobody was there"}
        {entry.outcome === "unfinished" && "the last run was unfinished"}
        {entry.errorMessage} {entry.errorCode != null && <code>{entry.errorCode}</code>}
      </span>
      {entry.sessionId != null && (
        <Link
          to="/apps/$app/sessions/$session"
          params={{ app, session: entry.sessionId }}
          search={userId === DEFAULT_USER ? {} : { user: userId }}
        >
          Open the session
        </Link>
      )}
    </li>
  );
}
