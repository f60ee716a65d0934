import { Circle, CircleDashed, CircleX } from "lucide-react";
import type { Connection } from "./feed";

const LOOKS = {
  loading: { icon: CircleDashed, tone: "idle", name: "Loading" },
  live: { icon: Circle, tone: "ok", name: "Live" },
  reconnecting: { icon: CircleDashed, tone: "wait", name: "Reconnecting" },
  failed: { icon: CircleX, tone: "bad", name: "Disconnected" },
} as const;

export function ConnectionDot({ connection }: { connection: Connection }) {
  const { icon: Icon, tone, name } = LOOKS[connection];
  return (
    <span className={`status connection ${tone}`} role="status">
      <Icon size={10} fill={connection === "live" ? "currentColor" : "none"} aria-hidden="true" />
      {name}
    </span>
  );
}
