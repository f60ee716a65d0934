import type { SessionPlace } from "../api";
import type { LoggedEvent, Timeline } from "../timeline/model";

/** Of the inspector and of its panels. choose: makes another event the chosen one. */
export type InspectorProps = {
  readonly place: SessionPlace;
  readonly timeline: Timeline;
  readonly chosen: LoggedEvent;
  readonly tab: string;
  readonly setTab: (tab: string) => void;
  readonly choose: (eventId: string) => void;
  readonly close: () => void;
};
