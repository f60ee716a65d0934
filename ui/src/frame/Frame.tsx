import { Link, Outlet, useLocation } from "@tanstack/react-router";
import { Bot, CalendarClock, ChartLine, FlaskConical, Inbox, ListTree, MessageSquare, Settings } from "lucide-react";
import { Suspense, lazy, useEffect, useState } from "react";
import { TopBar } from "./TopBar";

const AdministrationLink = lazy(() => import("./AdministrationLink"));
const InboxBadge = lazy(() => import("./InboxBadge"));
const Palette = lazy(() => import("../palette/Palette"));

const PAGES = [
  { to: "/", name: "Chat", icon: MessageSquare },
  { to: "/runs", name: "Runs", icon: ListTree },
  { to: "/statistics", name: "Statistics", icon: ChartLine },
  { to: "/inbox", name: "Inbox", icon: Inbox },
  { to: "/schedules", name: "Schedules", icon: CalendarClock },
  { to: "/agents", name: "Agents", icon: Bot },
  { to: "/evaluate", name: "Evaluate", icon: FlaskConical },
  { to: "/settings", name: "Settings", icon: Settings },
] as const;

function isTyping(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("input, textarea, select, [contenteditable=true]") !== null;
}

/** Rail and top bar around the page. ⌘K or Ctrl+K opens the command palette. */
export function Frame() {
  const page = `/${useLocation().pathname.split("/")[1] ?? ""}`;
  const current = page === "/apps" ? "/" : page === "/compare" ? "/runs" : page === "/versions" ? "/agents" : page;
  const [palette, setPalette] = useState<"closed" | "commands" | "keys">("closed");
  useEffect(() => {
    function onKey(event: KeyboardEvent) {
      if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setPalette((before) => (before === "closed" ? "commands" : "closed"));
      } else if (event.key === "?" && !isTyping(event.target)) {
        setPalette("keys");
      }
    }
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  return (
    <div className="frame">
      <a className="skip" href="#page">
        Skip to content
      </a>
      <nav className="rail" aria-label="Pages">
        <span className="rail-mark" aria-hidden="true" />
        {PAGES.map(({ to, name, icon: Icon }) => (
          <Link key={to} to={to} className={`rail-link${to === current ? " current" : ""}`} title={name} aria-current={to === current ? "page" : undefined}>
            <Icon size={20} aria-hidden="true" />
            <span className="rail-name">{name}</span>
            {to === "/inbox" && page !== "/sign-in" && (
              <Suspense>
                <InboxBadge />
              </Suspense>
            )}
          </Link>
        ))}
        {page !== "/sign-in" && (
          <Suspense>
            <AdministrationLink isCurrent={page === "/admin"} />
          </Suspense>
        )}
      </nav>
      <TopBar openPalette={() => setPalette("commands")} />
      <div className="frame-page" id="page" tabIndex={-1}>
        <Suspense>
          <Outlet />
        </Suspense>
      </div>
      {palette !== "closed" && (
        <Suspense>
          <Palette close={() => setPalette("closed")} showsKeys={palette === "keys"} />
        </Suspense>
      )}
    </div>
  );
}
