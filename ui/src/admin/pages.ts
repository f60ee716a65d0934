// The pages of the group "Administration", in the order of its navigation.
import type { Me } from "greenroom-client";

/** scope: a key that has it sees the page. needsKeys: the page is of servers that ask for keys. */
export const ADMIN_PAGES = [
  { to: "/admin/keys", name: "Keys", scope: "admin", needsKeys: true },
  { to: "/admin/budgets", name: "Budgets", scope: "admin", needsKeys: false },
  { to: "/admin/memories", name: "Memories", scope: "admin", needsKeys: false },
  { to: "/admin/settings", name: "Server settings", scope: "admin", needsKeys: false },
  { to: "/admin/audit", name: "Audit trail", scope: "audit", needsKeys: false },
] as const;

export type AdminPage = (typeof ADMIN_PAGES)[number];

export function visiblePages(me: Me | undefined): readonly AdminPage[] {
  const scopes = me?.scopes ?? [];
  const hasKeys = me?.userId != null;
  return ADMIN_PAGES.filter(({ scope, needsKeys }) => (scopes.includes(scope) || scopes.includes("admin")) && (hasKeys || !needsKeys));
}
