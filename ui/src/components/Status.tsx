import type { RunStatus } from "greenroom-client";
import { Ban, CircleCheck, CircleDashed, Clock, LoaderCircle, TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";

const LOOKS = {
  queued: { icon: CircleDashed, tone: "idle", name: "Queued" },
  running: { icon: LoaderCircle, tone: "busy", name: "Running" },
  waiting: { icon: Clock, tone: "wait", name: "Waiting" },
  succeeded: { icon: CircleCheck, tone: "ok", name: "Succeeded" },
  failed: { icon: TriangleAlert, tone: "bad", name: "Failed" },
  cancelled: { icon: Ban, tone: "idle", name: "Cancelled" },
} as const;

/** A run's status: colour, shape and word. children: shown instead of the word. */
export function Status({ status, children }: { status: RunStatus; children?: ReactNode }) {
  const { icon: Icon, tone, name } = LOOKS[status];
  return (
    <span className={`status ${tone}`}>
      <Icon size={14} aria-hidden="true" />
      {children || name}
    </span>
  );
}
