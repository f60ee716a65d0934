import { useQuery } from "@tanstack/react-query";
import { client } from "../api";

/** The caller's user and permissions. */
export function useMe() {
  return useQuery({ queryKey: ["me"], queryFn: () => client.getMe(), staleTime: Number.POSITIVE_INFINITY, retry: false });
}
