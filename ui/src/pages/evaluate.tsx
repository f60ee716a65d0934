import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { FlaskConical } from "lucide-react";
import { call, listApps } from "../api";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import type { Search } from "./filters";
import "./pages.css";

/** Evaluation sets and results of an app. The server does not evaluate yet; the page says so. */
export function EvaluatePage() {
  const search = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const apps = useQuery({ queryKey: ["apps"], queryFn: listApps });
  const app = search.app ?? apps.data?.find((one) => one.error == null)?.name;
  const found = useQuery({
    queryKey: ["evaluation", app],
    queryFn: async () => {
      const path = `/dev/apps/${encodeURIComponent(app ?? "")}`;
      const [sets, results] = await Promise.all([
        call<readonly string[]>("GET", `${path}/eval_sets`),
        call<readonly string[]>("GET", `${path}/eval_results`),
      ]);
      return { sets, results };
    },
    enabled: app !== undefined,
  });
  return (
    <main className="page">
      <div className="row">
        <h1 className="spread">Evaluate</h1>
        {apps.data !== undefined && app !== undefined && (
          <select
            className="select"
            aria-label="App"
            value={app}
            onChange={(event) => void navigate({ to: "/evaluate", search: { app: event.target.value } })}
          >
            {apps.data.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        )}
      </div>
      {found.isError && <ErrorLine error={found.error} />}
      {found.data !== undefined && found.data.sets.length + found.data.results.length > 0 && (
        <div className="names">
          <Names title="Sets" names={found.data.sets} />
          <Names title="Results" names={found.data.results} />
        </div>
      )}
      <Empty title="This server does not evaluate yet">
        <p className="row soft">
          <FlaskConical size={16} aria-hidden="true" /> Requests to create sets and to run them are answered with 501 Not Implemented.
        </p>
        <p>Until it does, an agent's behaviour can be checked in two ways:</p>
        <ul className="plain">
          <li>
            In the inspector of an event, <b>Copy as pytest test</b> writes a test that sends the same message and expects the same tool
            calls.
          </li>
          <li>
            <Link to="/compare">Compare</Link> shows two runs step by step: choose two of them in <Link to="/runs">Runs</Link>.
          </li>
        </ul>
      </Empty>
    </main>
  );
}

function Names({ title, names }: { title: string; names: readonly string[] }) {
  return (
    <section>
      <h2>{title}</h2>
      <ul className="plain">
        {names.map((name) => (
          <li key={name}>{name}</li>
        ))}
      </ul>
    </section>
  );
}
