import type { Schedule } from "greenroom-client";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useEffect, useId, useState } from "react";
import { client } from "../api";
import { ErrorLine } from "../components/ErrorLine";
import { chosenUser } from "../user";
import {
  type Draft,
  LOCAL_ZONE,
  MISSED,
  type Missed,
  OVERLAPS,
  type Overlap,
  UNITS,
  type Unit,
  draftOf,
  emptyDraft,
  inZone,
  isComplete,
  scheduleOf,
} from "./schedules";

const SETTLED_MS = 300;
const KINDS = { cron: "Cron expression", interval: "Interval", once: "Once" } as const satisfies Record<Draft["kind"], string>;

type ScheduleFormProps = {
  /** The schedule that is changed; a new one without it. */
  readonly schedule?: Schedule;
  readonly save: (schedule: Schedule) => Promise<Schedule>;
  readonly saved: (schedule: Schedule) => Promise<void>;
  /** The app of which it is a schedule. */
  readonly app: string;
  readonly cancel: () => void;
};

/** Makes or changes a schedule. */
export function ScheduleForm({ app, schedule, save, saved, cancel }: ScheduleFormProps) {
  const [draft, setDraft] = useState<Draft>(() => (schedule === undefined ? emptyDraft(chosenUser()) : draftOf(schedule)));
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const set = (change: Partial<Draft>) => setDraft((before) => ({ ...before, ...change }));

  async function submit(event: FormEvent) {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await saved(await save(scheduleOf(draft, schedule)));
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  }

  return (
    <form className="schedule-form" aria-label={schedule === undefined ? "New schedule" : "Edit the schedule"} onSubmit={(event) => void submit(event)}>
      <fieldset className="segments">
        <legend className="hidden">When</legend>
        {Object.entries(KINDS).map(([kind, name]) => (
          <label key={kind}>
            <input type="radio" name="kind" checked={draft.kind === kind} onChange={() => set({ kind: kind as Draft["kind"] })} />
            {name}
          </label>
        ))}
      </fieldset>
      <Times draft={draft} set={set} />
      <NextTimes app={app} schedule={{ ...scheduleOf(draft, schedule), createdAt: schedule?.createdAt ?? 0 }} />
      <Field label="Message">
        <textarea className="textarea" rows={2} value={draft.message} onChange={(event) => set({ message: event.target.value })} />
      </Field>
      <div className="schedule-fields">
        <Field label="User">
          <input className="input" required value={draft.userId} onChange={(event) => set({ userId: event.target.value })} />
        </Field>
        <Field label="Session" hint="An existing one; empty: a new one for each run">
          <input className="input" value={draft.sessionId} onChange={(event) => set({ sessionId: event.target.value, overlap: "" })} />
        </Field>
      </div>
      <Options draft={draft} set={set} />
      {error !== null && <ErrorLine error={error} />}
      <div className="buttons">
        <button type="submit" className="button primary" disabled={isBusy}>
          {schedule === undefined ? "Create" : "Save"}
        </button>
        <button type="button" className="button quiet" onClick={cancel}>
          Cancel
        </button>
      </div>
    </form>
  );
}

/** When it would run, once the fields have not changed for a moment. */
function NextTimes({ app, schedule }: { app: string; schedule: Schedule }) {
  const { request: _, ...timing } = schedule;
  const given = useSettled(JSON.stringify(timing));
  const times = useQuery({
    queryKey: ["schedule times", app, given],
    queryFn: () => client.nextTimes(app, JSON.parse(given) as Schedule),
    enabled: isComplete(JSON.parse(given) as Schedule),
    retry: false,
    placeholderData: keepPreviousData,
  });
  if (times.isError) return <p className="soft">No next times: {times.error.message}</p>;
  if (times.data === undefined) return null;
  if (times.data.length === 0) return <p className="soft">No time is left.</p>;
  return (
    <div className="schedule-times soft">
      Next times
      <ol aria-label="Next times">
        {times.data.map((at) => (
          <li key={at}>{inZone(at, schedule.timeZone ?? LOCAL_ZONE)}</li>
        ))}
      </ol>
    </div>
  );
}

function useSettled(value: string): string {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), SETTLED_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

type PartProps = { readonly draft: Draft; readonly set: (change: Partial<Draft>) => void };

function Times({ draft, set }: PartProps) {
  const zones = useId();
  switch (draft.kind) {
    case "cron":
      return (
        <div className="schedule-fields">
          <Field label="Cron" hint="Minute, hour, day of the month, month, day of the week">
            <input className="input mono" required value={draft.cron} onChange={(event) => set({ cron: event.target.value })} />
          </Field>
          <Field label="Time zone">
            <input className="input" required list={zones} value={draft.timeZone} onChange={(event) => set({ timeZone: event.target.value })} />
            <datalist id={zones}>
              {["UTC", ...Intl.supportedValuesOf("timeZone")].map((zone) => (
                <option key={zone} value={zone} />
              ))}
            </datalist>
          </Field>
        </div>
      );
    case "interval":
      return (
        <div className="schedule-fields">
          <Field label="Every">
            <input type="number" className="input" min="1" step="any" required value={draft.count} onChange={(event) => set({ count: event.target.value })} />
          </Field>
          <Field label="Unit">
            <select className="select" value={draft.unit} onChange={(event) => set({ unit: event.target.value as Unit })}>
              {Object.keys(UNITS).map((unit) => (
                <option key={unit}>{unit}</option>
              ))}
            </select>
          </Field>
        </div>
      );
    case "once":
      return (
        <Field label="At" hint="In the time zone of this browser">
          <TimeInput value={draft.at} isRequired set={(at) => set({ at })} />
        </Field>
      );
  }
}

/** What has a default for most schedules. */
function Options({ draft, set }: PartProps) {
  const overlaps = (Object.keys(OVERLAPS) as Overlap[]).filter((one) => one !== (draft.sessionId === "" ? "enqueue" : "allow"));
  return (
    <details>
      <summary>More options</summary>
      <div className="schedule-fields">
        <Field label="No run before">
          <TimeInput value={draft.startAt} set={(startAt) => set({ startAt })} />
        </Field>
        <Field label="No run after">
          <TimeInput value={draft.endAt} set={(endAt) => set({ endAt })} />
        </Field>
        <Field label="Jitter in seconds" hint="Each run starts up to this much later">
          <input type="number" className="input" min="0" max="3600" step="any" value={draft.jitter} onChange={(event) => set({ jitter: event.target.value })} />
        </Field>
        <Field label="For times that passed while the server was down">
          <select className="select" value={draft.missed} onChange={(event) => set({ missed: event.target.value as Missed })}>
            {Object.entries(MISSED).map(([missed, name]) => (
              <option key={missed} value={missed}>
                {name}
              </option>
            ))}
          </select>
        </Field>
        <Field label="While its last run is unfinished">
          <select className="select" value={draft.overlap} onChange={(event) => set({ overlap: event.target.value as Overlap | "" })}>
            <option value="">By default: {OVERLAPS[draft.sessionId === "" ? "allow" : "skip"].toLowerCase()}</option>
            {overlaps.map((overlap) => (
              <option key={overlap} value={overlap}>
                {OVERLAPS[overlap]}
              </option>
            ))}
          </select>
        </Field>
      </div>
    </details>
  );
}

function TimeInput({ value, isRequired = false, set }: { value: string; isRequired?: boolean; set: (value: string) => void }) {
  return <input type="datetime-local" className="input" step="1" required={isRequired} value={value} onChange={(event) => set(event.target.value)} />;
}

function Field({ label, hint, children }: { label: string; hint?: string; children: ReactNode }) {
  return (
    <div className="schedule-field">
      <label>
        {label}
        {children}
      </label>
      {hint !== undefined && <span className="soft">{hint}</span>}
    </div>
  );
}
