import type { QueryClient, QueryKey } from "@tanstack/react-query";

/**
 * Loads the shown queries under `queryKey` again after a change. A load that is under way is started anew: what it
 * brings may have been read before the change.
 */
export async function reload(queries: QueryClient, queryKey: QueryKey): Promise<void> {
  await queries.cancelQueries({ queryKey });
  await queries.invalidateQueries({ queryKey });
}
