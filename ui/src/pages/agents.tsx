import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import type { AppInfo } from "greenroom-client";
import { Copy, TriangleAlert } from "lucide-react";
import { type ReactNode, Suspense, lazy, useState } from "react";
import { call, listApps } from "../api";
import { AgentName } from "../components/AgentName";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { Markdown } from "../components/Markdown";
import "../inspector/inspector.css";
import { Facts } from "../inspector/Parts";
import { useIsDark } from "../media";
import { userSearch } from "../user";
import { AppLog } from "./AppLog";
import type { Search } from "./filters";
import { remedyOf } from "./remedy";
import "./pages.css";

const AgentEditor = lazy(async () => ({ default: (await import("../editor/AgentEditor")).AgentEditor }));
const NewApp = lazy(async () => ({ default: (await import("../editor/AgentEditor")).NewApp }));
const Graph = lazy(async () => ({ default: (await import("../inspector/Graph")).GraphOf }));

type AgentTree = {
  readonly name: string;
  readonly description?: string;
  readonly model?: string;
  readonly instruction?: string;
  readonly tools?: readonly { readonly name: string; readonly type?: string }[];
  readonly sub_agents?: readonly AgentTree[];
};
type AppTree = { readonly name: string; readonly root_agent: AgentTree; readonly readme?: string };

const REFRESH_MS = 5_000;

const FIRST_AGENT = `from greenroom import LlmAgent


def get_weather(city: str) -> dict[str, object]:
    """Looks up the weather of a city."""
    return {"city": city, "sky": "clear", "degrees": 12}


root_agent = LlmAgent(
    name="weather",
    model="local/smollm2-135m",
    description="Knows the weather.",
    instruction="Answer questions about the weather. Look it up first.",
    tools=[get_weather],
)
`;

/** The server's apps, kept up to date: a changed source is loaded again by the server. */
export function AgentsPage() {
  const { app } = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const mayEdit = useMayEdit();
  const apps = useQuery({ queryKey: ["apps"], queryFn: listApps, refetchInterval: REFRESH_MS });
  if (apps.isPending) return <main className="page soft">Loading…</main>;
  if (apps.isError) {
    return (
      <main className="page">
        <ErrorLine error={apps.error} />
      </main>
    );
  }
  const newApp = mayEdit && (
    <Suspense>
      <NewApp names={apps.data.map((one) => one.name)} onMade={(name) => void navigate({ to: "/agents", search: { app: name } })} />
    </Suspense>
  );
  if (apps.data.length === 0) return <NoApps>{newApp}</NoApps>;
  const chosen = apps.data.find((one) => one.name === app);
  return (
    <main className={chosen === undefined ? "page agents" : "page agents has-choice"}>
      <h1 className="hidden">Agents</h1>
      <nav className="agents-list" aria-label="Apps">
        <ul>
          {apps.data.map((one) => (
            <li key={one.name}>
              <Link to="/agents" search={{ app: one.name }} aria-current={one === chosen ? "page" : undefined} activeProps={{}}>
                <span className="row">
                  <strong className="cut">{one.name}</strong>
                  {one.error != null && (
                    <span className="status bad">
                      <TriangleAlert size={14} aria-hidden="true" />
                      {one.rootAgentName ? "Old version" : "Doesn't load"}
                    </span>
                  )}
                  {one.error == null && one.missing != null && (
                    <span className="status wait">
                      <TriangleAlert size={14} aria-hidden="true" />
                      Incomplete
                    </span>
                  )}
                </span>
                <span className="soft clamp">{one.error != null ? one.error : one.description || "No description"}</span>
              </Link>
            </li>
          ))}
        </ul>
        {newApp}
      </nav>
      <div className="agents-detail">
        {chosen === undefined ? (
          <Empty title="Choose an app">
            <p>Its agents, their models, instructions and tools, and the graph of how they call each other are shown here.</p>
          </Empty>
        ) : (
          <AppDetail key={chosen.name} app={chosen} mayEdit={mayEdit} />
        )}
      </div>
    </main>
  );
}

/** Whether the server was started with `--edit`. */
function useMayEdit(): boolean {
  const config = useQuery({
    queryKey: ["runtime config"],
    queryFn: () => call<{ readonly edit?: boolean }>("GET", "/dev-ui/assets/config/runtime-config.json"),
    staleTime: Number.POSITIVE_INFINITY,
  });
  return config.data?.edit === true;
}

function NoApps({ children }: { children: ReactNode }) {
  return (
    <main className="page">
      <Empty title="No apps yet">
        <p>
          An app is a folder with an <code>agent.py</code>. Save this one as <code>weather/agent.py</code> in the folder that the
          server serves; it appears here as soon as it is saved.
        </p>
        <CopyBlock text={FIRST_AGENT} label="Copy the agent" />
        <p>
          Its model runs on this machine; get it once with <code>greenroom models pull smollm2-135m</code>.
        </p>
        {children}
      </Empty>
    </main>
  );
}

/** A text to copy, with its button. */
function CopyBlock({ text, label }: { text: string; label: string }) {
  const [said, say] = useState(label);
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      say("Copied");
    } catch {
      say("The browser refused access to the clipboard");
    }
    setTimeout(() => say(label), 2_000);
  }
  return (
    <div className="copy-block">
      <pre>{text}</pre>
      <button type="button" className="button small" onClick={() => void copy()}>
        <Copy size={14} aria-hidden="true" />
        <span role="status">{said}</span>
      </button>
    </div>
  );
}

function AppDetail({ app, mayEdit }: { app: AppInfo; mayEdit: boolean }) {
  const isLoaded = Boolean(app.rootAgentName);
  const tree = useQuery({
    queryKey: ["app tree", app.name],
    queryFn: () => call<AppTree>("GET", `/dev/apps/${encodeURIComponent(app.name)}/build_graph`),
    enabled: isLoaded,
    refetchInterval: REFRESH_MS,
  });
  return (
    <article className="app-detail">
      <Link to="/agents" search={{}} className="back">
        All apps
      </Link>
      <div className="row">
        <h2 className="cut">{app.name}</h2>
        <span className="spread" />
        <Link className="button link" to="/versions" search={{ app: app.name }}>
          Versions
        </Link>
        {isLoaded && (
          <>
            <Link className="button link" to="/runs" search={{ app: app.name }}>
              Runs
            </Link>
            <Link className="button primary link" to="/apps/$app" params={{ app: app.name }} search={userSearch()}>
              Chat
            </Link>
          </>
        )}
      </div>
      {app.description && <p>{app.description}</p>}
      {app.error != null && <LoadError app={app} />}
      {app.missing != null && (
        <section className="missing">
          <h3>Missing on the server</h3>
          {app.missing.map((text) => (
            <Missing key={text} text={text} />
          ))}
        </section>
      )}
      {mayEdit && (
        <section>
          <h3>Files</h3>
          <Suspense fallback={<p className="soft">Loading the editor…</p>}>
            <AgentEditor app={app.name} />
          </Suspense>
        </section>
      )}
      <AppLog app={app.name} />
      {tree.isError && <ErrorLine error={tree.error} />}
      {tree.data !== undefined && (
        <>
          <section>
            <h3>Agents</h3>
            <ul className="agent-tree">
              <AgentNode agent={tree.data.root_agent} />
            </ul>
          </section>
          <section>
            <h3>Graph</h3>
            <div className="agents-graph">
              <Suspense fallback={<p className="soft">Loading the graph…</p>}>
                <AppGraph name={app.name} />
              </Suspense>
            </div>
          </section>
          {tree.data.readme !== undefined && (
            <section>
              <h3>README</h3>
              <Markdown text={tree.data.readme} />
            </section>
          )}
        </>
      )}
    </article>
  );
}

function AppGraph({ name }: { name: string }) {
  return <Graph path={`/dev/apps/${encodeURIComponent(name)}/graph?dark_mode=${useIsDark()}`} />;
}

/** A missing requirement of a model, with the command that mends it. */
function Missing({ text }: { text: string }) {
  const remedy = remedyOf(text);
  return (
    <>
      <p>{text}</p>
      {remedy !== null && <CopyBlock text={remedy.command} label="Copy the command" />}
    </>
  );
}

function LoadError({ app }: { app: AppInfo }) {
  const error = app.error ?? "";
  const remedy = remedyOf(error);
  return (
    <section className="load-error">
      <ErrorLine
        error={new Error(app.rootAgentName ? "The newest source doesn't load; the last good version is served." : "The app doesn't load.")}
      />
      <pre className="wrapped">{error}</pre>
      {remedy !== null && (
        <>
          <p>{remedy.reason}</p>
          <CopyBlock text={remedy.command} label="Copy the command" />
        </>
      )}
      <p className="soft">The server loads the app again as soon as its files change.</p>
    </section>
  );
}

function AgentNode({ agent }: { agent: AgentTree }) {
  const tools = agent.tools ?? [];
  return (
    <li>
      <AgentName name={agent.name} />
      <div className="agent-body">
        {agent.description && <p>{agent.description}</p>}
        <Facts
          facts={[
            ["Model", agent.model && <code key="model">{agent.model}</code>],
            [
              "Tools",
              tools.length > 0 && (
                <span key="tools" className="chips">
                  {tools.map((tool) => (
                    <code key={tool.name}>{tool.name}</code>
                  ))}
                </span>
              ),
            ],
            [
              "Instruction",
              agent.instruction && (
                <details key="instruction">
                  <summary className="cut">{agent.instruction}</summary>
                  <pre className="wrapped">{agent.instruction}</pre>
                </details>
              ),
            ],
          ]}
        />
      </div>
      {(agent.sub_agents?.length ?? 0) > 0 && (
        <ul>
          {agent.sub_agents?.map((one) => (
            <AgentNode key={one.name} agent={one} />
          ))}
        </ul>
      )}
    </li>
  );
}
