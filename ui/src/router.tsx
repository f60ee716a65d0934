import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { BASE, DEFAULT_USER } from "./api";
import { ChatPage } from "./chat/ChatPage";
import { Frame } from "./frame/Frame";

/** Parameters of a session's page in the address. event: the chosen one; tab: of the inspector; user: if not `user`. */
export type ChatSearch = { readonly event?: string; readonly tab?: string; readonly user?: string };

function text(value: unknown): string | undefined {
  if (typeof value === "number") return String(value);
  return typeof value === "string" && value !== "" ? value : undefined;
}

function chatSearch(search: Record<string, unknown>): ChatSearch {
  const [event, tab, user] = [text(search.event), text(search.tab), text(search.user)];
  return {
    ...(event === undefined ? {} : { event }),
    ...(tab === undefined ? {} : { tab }),
    ...(user === undefined || user === DEFAULT_USER ? {} : { user }),
  };
}

const root = createRootRoute({ component: Frame });
const home = createRoute({ getParentRoute: () => root, path: "/", component: ChatPage, validateSearch: chatSearch });
const app = createRoute({ getParentRoute: () => root, path: "/apps/$app", component: ChatPage, validateSearch: chatSearch });
const session = createRoute({
  getParentRoute: () => root,
  path: "/apps/$app/sessions/$session",
  component: ChatPage,
  validateSearch: chatSearch,
});

/** Pages read their own search parameters: all of the address's, as strings. */
function anySearch(search: Record<string, unknown>): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(search).map(([key, value]) => [key, text(value)]));
}

const runs = createRoute({
  getParentRoute: () => root,
  path: "/runs",
  component: lazyRouteComponent(() => import("./pages/runs"), "RunsPage"),
  validateSearch: anySearch,
});
const statistics = createRoute({
  getParentRoute: () => root,
  path: "/statistics",
  component: lazyRouteComponent(() => import("./statistics/StatisticsPage"), "StatisticsPage"),
  validateSearch: anySearch,
});
const inbox = createRoute({
  getParentRoute: () => root,
  path: "/inbox",
  component: lazyRouteComponent(() => import("./pages/inbox"), "InboxPage"),
  validateSearch: anySearch,
});
const schedules = createRoute({
  getParentRoute: () => root,
  path: "/schedules",
  component: lazyRouteComponent(() => import("./pages/schedules"), "SchedulesPage"),
  validateSearch: anySearch,
});
const agents = createRoute({
  getParentRoute: () => root,
  path: "/agents",
  component: lazyRouteComponent(() => import("./pages/agents"), "AgentsPage"),
  validateSearch: anySearch,
});
const versions = createRoute({
  getParentRoute: () => root,
  path: "/versions",
  component: lazyRouteComponent(() => import("./pages/versions"), "VersionsPage"),
  validateSearch: anySearch,
});
const compare = createRoute({
  getParentRoute: () => root,
  path: "/compare",
  component: lazyRouteComponent(() => import("./pages/compare"), "ComparePage"),
  validateSearch: anySearch,
});
const evaluate = createRoute({
  getParentRoute: () => root,
  path: "/evaluate",
  component: lazyRouteComponent(() => import("./pages/evaluate"), "EvaluatePage"),
  validateSearch: anySearch,
});
const settings = createRoute({
  getParentRoute: () => root,
  path: "/settings",
  component: lazyRouteComponent(() => import("./pages/settings"), "SettingsPage"),
});
const audit = createRoute({
  getParentRoute: () => root,
  path: "/admin/audit",
  component: lazyRouteComponent(() => import("./admin/audit"), "AuditPage"),
  validateSearch: anySearch,
});
const adminKeys = createRoute({
  getParentRoute: () => root,
  path: "/admin/keys",
  component: lazyRouteComponent(() => import("./admin/keys"), "KeysPage"),
  validateSearch: anySearch,
});
const adminBudgets = createRoute({
  getParentRoute: () => root,
  path: "/admin/budgets",
  component: lazyRouteComponent(() => import("./admin/budgets"), "BudgetsPage"),
  validateSearch: anySearch,
});
const adminMemories = createRoute({
  getParentRoute: () => root,
  path: "/admin/memories",
  component: lazyRouteComponent(() => import("./admin/memories"), "MemoriesPage"),
  validateSearch: anySearch,
});
const adminSettings = createRoute({
  getParentRoute: () => root,
  path: "/admin/settings",
  component: lazyRouteComponent(() => import("./admin/settings"), "ServerSettingsPage"),
  validateSearch: anySearch,
});
const signIn = createRoute({
  getParentRoute: () => root,
  path: "/sign-in",
  component: lazyRouteComponent(() => import("./pages/signIn"), "SignInPage"),
  validateSearch: anySearch,
});
const unknown = createRoute({
  getParentRoute: () => root,
  path: "$",
  beforeLoad: () => {
    throw redirect({ to: "/" });
  },
});

export const router = createRouter({
  routeTree: root.addChildren([home, app, session, runs, statistics, inbox, schedules, agents, versions, compare, evaluate, settings, audit, adminKeys, adminBudgets, adminMemories, adminSettings, signIn, unknown]),
  basepath: BASE,
  defaultPreload: "intent",
});

declare module "@tanstack/react-router" {
  interface HistoryState {
    /** A session's page begins with a live conversation. */
    talks?: boolean;
  }
  interface Register {
    router: typeof router;
  }
}
