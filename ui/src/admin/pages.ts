// The pages of the group "Administration", in the order of its navigation.
import type { Me } from "greenroom-client";

/** scope: a key that has it sees the page. */
export const ADMIN_PAGES = [{ to: "/admin/audit", name: "Audit trail", scope: "audit" }] as const;

export type AdminPage = (typeof ADMIN_PAGES)[number];

export function visiblePages(me: Me | undefined): readonly AdminPage[] {
  const scopes = me?.scopes ?? [];
  return ADMIN_PAGES.filter(({ scope }) => scopes.includes(scope) || scopes.includes("admin"));
}
