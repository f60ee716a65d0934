import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Search, User } from "lucide-react";
import { DEFAULT_USER, listApps } from "../api";
import { userSearch } from "../user";
import { SessionTitle } from "./SessionTitle";

/** App switcher, session title, user and the palette's button. */
export function TopBar({ openPalette }: { openPalette: () => void }) {
  const { app = "", session = "" } = useParams({ strict: false });
  const { user = DEFAULT_USER } = useSearch({ strict: false }) as { user?: string };
  return (
    <header className="topbar">
      <AppSwitcher app={app} />
      {session !== "" && <SessionTitle place={{ app, user, session }} />}
      <span className="topbar-space" />
      {app !== "" && <UserSwitcher app={app} user={user} />}
      <button type="button" className="button quiet" onClick={openPalette} title="Commands (⌘K)">
        <Search size={16} aria-hidden="true" />
        <kbd>⌘K</kbd>
        <span className="hidden">Open the command palette</span>
      </button>
    </header>
  );
}

function AppSwitcher({ app }: { app: string }) {
  const apps = useQuery({ queryKey: ["apps"], queryFn: listApps });
  const navigate = useNavigate();
  const names = apps.data?.map((one) => one.name) ?? [];
  return (
    <select
      className="select app-switcher"
      aria-label="App"
      value={app}
      onChange={(event) => void navigate({ to: "/apps/$app", params: { app: event.target.value }, search: userSearch() })}
    >
      {app === "" && <option value="">Choose an app</option>}
      {app !== "" && !names.includes(app) && <option value={app}>{app}</option>}
      {apps.data?.map((one) => (
        <option key={one.name} value={one.name} disabled={one.error !== undefined && one.error !== null}>
          {one.error ? `${one.name} (doesn't load)` : one.name}
        </option>
      ))}
    </select>
  );
}

function UserSwitcher({ app, user }: { app: string; user: string }) {
  const navigate = useNavigate();
  function choose() {
    const wanted = prompt("User id whose sessions to show", user)?.trim();
    if (!wanted || wanted === user) return;
    void navigate({ to: "/apps/$app", params: { app }, search: userSearch(wanted) });
  }
  return (
    <button type="button" className="button quiet user" onClick={choose} title="User: whose sessions are shown">
      <User size={16} aria-hidden="true" />
      <span className="user-name">{user}</span>
    </button>
  );
}
