import type { SessionPlace } from "../api";
import type { LoggedEvent, Timeline } from "../timeline/model";

export type InspectorProps = {
  readonly place: SessionPlace;
  readonly timeline: Timeline;
  readonly chosen: LoggedEvent;
  readonly tab: string;
  readonly setTab: (tab: string) => void;
  readonly choose: (eventId: string) => void;
  readonly close: () => void;
};

/** What there is to know about the chosen event. Loaded when an event is first opened. */
export default function Inspector({ chosen, close }: InspectorProps) {
  return (
    <aside className="inspector" aria-label="Inspector">
      <button type="button" className="button" onClick={close}>
        Close
      </button>
      <pre>{JSON.stringify(chosen.event, null, 2)}</pre>
    </aside>
  );
}
