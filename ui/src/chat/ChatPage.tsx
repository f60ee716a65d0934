import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useEffect } from "react";
import { DEFAULT_USER, listApps } from "../api";
import { ErrorLine } from "../components/ErrorLine";
import { NoApps } from "./NoApps";
import { NewSession } from "./NewSession";
import { SessionPane } from "./SessionPane";
import { userSearch } from "../user";
import "../styles/timeline.css";
import "../styles/cards.css";
import "../styles/composer.css";
import "../styles/chat.css";

/** Sessions, timeline and inspector of the app and session in the address. */
export function ChatPage() {
  const { app = "", session = "" } = useParams({ strict: false });
  const { user = DEFAULT_USER } = useSearch({ strict: false }) as { user?: string };
  const apps = useQuery({ queryKey: ["apps"], queryFn: listApps });
  const navigate = useNavigate();
  const queries = useQueryClient();
  const first = apps.data?.find((one) => !one.error)?.name;
  useEffect(() => {
    if (app === "" && first !== undefined) void navigate({ to: "/apps/$app", params: { app: first }, search: userSearch(), replace: true });
  }, [app, first, navigate]);
  useEffect(() => {
    document.title = app === "" ? "greenroom" : `${app} · greenroom`;
  }, [app]);
  if (apps.error !== null && app === "") {
    return (
      <main className="page">
        <ErrorLine error={apps.error}>
          <button type="button" className="button" onClick={() => void queries.invalidateQueries({ queryKey: ["apps"] })}>
            Try again
          </button>
        </ErrorLine>
      </main>
    );
  }
  if (app === "") return <main className="page">{apps.data !== undefined && first === undefined && <NoApps apps={apps.data} />}</main>;
  if (session === "") return <NewSession key={`${app}\n${user}`} app={app} user={user} info={apps.data?.find((one) => one.name === app)} />;
  return <SessionPane key={`${app}\n${user}\n${session}`} place={{ app, user, session }} />;
}
