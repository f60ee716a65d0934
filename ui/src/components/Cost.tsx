import { useQuery } from "@tanstack/react-query";
import type { ListUsageResponse } from "greenroom-client";
import { call } from "../api";

/** Cost of a run's models; null where a price is not known or the caller may not see usage. */
export async function costOf(app: string, runId: string): Promise<number | null> {
  const query = new URLSearchParams({ run_id: runId });
  try {
    const { usage } = await call<ListUsageResponse>("GET", `/apps/${encodeURIComponent(app)}/usage?${query}`);
    return usage?.[0]?.cost ?? null;
  } catch {
    return null;
  }
}

/** The cost of a run in US dollars once it has ended; nothing without a price. endedAt: null while the run is active. */
export function Cost({ app, runId, endedAt }: { app: string; runId: string; endedAt: number | null }) {
  const cost = useQuery({
    queryKey: ["cost", app, runId, endedAt],
    queryFn: () => costOf(app, runId),
    enabled: endedAt !== null,
    staleTime: Number.POSITIVE_INFINITY,
  });
  return cost.data ? <span title="Cost of the run's model calls">{dollars(cost.data)}</span> : null;
}

export function dollars(cost: number): string {
  return cost < 0.0001 ? "< $0.0001" : `$${cost.toFixed(4)}`;
}
