import type { Run, WakeUp } from "greenroom-client";
import { Moment } from "./Time";

/** Reason of a run that isn't over and doesn't run: what it waits for. Nothing for other runs. */
export function Waiting({ run }: { run: Run }) {
  if (run.status === "queued" && run.steeredInto != null) return "Is read by the active run";
  if (run.status === "queued" && run.startAt != null) {
    return (
      <>
        Starts at <Moment at={run.startAt} />
      </>
    );
  }
  if (run.status !== "waiting") return null;
  const wakeUps = Object.entries(run.wakeUps ?? {});
  if (wakeUps.length === 0) return "Needs a person's answer";
  return wakeUps.map(([callId, wakeUp], index) => (
    <span key={callId}>
      {index > 0 && " · "}
      <WakeUpText wakeUp={wakeUp} />
    </span>
  ));
}

/** "Sleeps until 10:00", "Waits for the signal paid until 10:00". */
export function WakeUpText({ wakeUp: { at, signal } }: { wakeUp: WakeUp }) {
  const isTimed = at !== undefined && at !== null;
  return (
    <>
      {signal ? (
        <>
          Waits for the signal <code>{signal}</code>
        </>
      ) : (
        "Sleeps"
      )}
      {isTimed && (
        <>
          {" until "}
          <Moment at={at} />
        </>
      )}
    </>
  );
}
