import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import type { ListVersionScoresResponse, ListVersionsResponse, MeanComparison, PublishedVersion, VersionScores } from "greenroom-client";
import { Undo2, Upload } from "lucide-react";
import { useState } from "react";
import { client, listApps } from "../api";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { Moment, duration } from "../components/Time";
import { count } from "../inspector/format";
import { reload } from "../reload";
import { Comparison } from "../versions/Comparison";
import { TrafficForm } from "../versions/TrafficForm";
import { SOURCE, leading, servingShares } from "../versions/shares";
import type { Search } from "./filters";
import "./pages.css";
import "./versions.css";

const REFRESH_MS = 10_000;
const MOST_FEEDBACK = 3;

/** The published versions of an app: their scores beside each other, which of them serve, and what differs. */
export function VersionsPage() {
  const { app: wantedApp } = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const apps = useQuery({ queryKey: ["apps"], queryFn: listApps });
  const app = wantedApp ?? apps.data?.[0]?.name;
  return (
    <main className="page versions">
      <div className="row">
        <h1 className="spread">Versions</h1>
        {apps.data !== undefined && app !== undefined && (
          <select
            className="select"
            aria-label="App"
            value={app}
            onChange={(event) => void navigate({ to: "/versions", search: { app: event.target.value } })}
          >
            {apps.data.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        )}
      </div>
      {app !== undefined && <VersionsOf key={app} app={app} />}
    </main>
  );
}

function VersionsOf({ app }: { app: string }) {
  const queries = useQueryClient();
  const listed = useQuery({ queryKey: ["versions", app], queryFn: () => client.listVersions(app), refetchInterval: REFRESH_MS });
  const scores = useQuery({ queryKey: ["version scores", app], queryFn: () => client.getVersionScores(app), refetchInterval: REFRESH_MS });
  const refresh = () =>
    Promise.all([
      reload(queries, ["versions", app]),
      reload(queries, ["version scores", app]),
      reload(queries, ["compared versions", app]),
    ]);
  if (listed.isError) return <ErrorLine error={listed.error} />;
  if (listed.data === undefined) return <p className="soft">Loading…</p>;
  const { versions, shares } = listed.data;
  const names = versions.map((one) => one.name);
  return (
    <>
      <Publish app={app} published={refresh} />
      {versions.length === 0 ? (
        <Empty title="No versions">
          <p>
            A version is a copy of the app's files that never changes. Publish one before and one after a change: they can be compared, serve a
            share of the sessions each, and be rolled back to.
          </p>
        </Empty>
      ) : (
        <>
          {scores.isError && <ErrorLine error={scores.error} />}
          <VersionTable app={app} listed={listed.data} scores={scores.data} changed={refresh} />
          {scores.data !== undefined && <Differences scores={scores.data} />}
          <TrafficForm key={JSON.stringify(shares)} app={app} names={names} shares={shares} saved={refresh} />
          <Compare app={app} names={names} />
        </>
      )}
    </>
  );
}

function Publish({ app, published }: { app: string; published: () => Promise<unknown> }) {
  const [message, setMessage] = useState("");
  const publish = useMutation({
    mutationFn: () => client.publishVersion(app, message),
    onSuccess: async () => {
      setMessage("");
      await published();
    },
  });
  return (
    <form
      className="publish"
      aria-label="Publish"
      onSubmit={(event) => {
        event.preventDefault();
        publish.mutate();
      }}
    >
      <input
        className="input"
        aria-label="What has changed"
        placeholder="What has changed"
        maxLength={2000}
        value={message}
        onChange={(event) => setMessage(event.target.value)}
      />
      <button type="submit" className="button" disabled={publish.isPending}>
        <Upload size={14} aria-hidden="true" />
        Publish the present code
      </button>
      <span role="status" className="soft">
        {publish.isPending && "The code is loaded from its copy…"}
        {publish.isSuccess && `The present code is ${publish.data.name}.`}
      </span>
      {publish.isError && <ErrorLine error={publish.error} />}
    </form>
  );
}

type TableProps = {
  readonly app: string;
  readonly listed: ListVersionsResponse;
  readonly scores: ListVersionScoresResponse | undefined;
  readonly changed: () => Promise<unknown>;
};

function VersionTable({ app, listed, scores, changed }: TableProps) {
  const shares = servingShares(listed.shares);
  const scoresOf = new Map(scores?.versions.map((one) => [one.name, one]));
  const hasSource = SOURCE in shares || scoresOf.has(SOURCE);
  const feedback = [...new Set(scores?.versions.flatMap((one) => Object.keys(one.feedback)))].slice(0, MOST_FEEDBACK);
  const rows: readonly (PublishedVersion | null)[] = hasSource ? [...listed.versions, null] : listed.versions;
  return (
    <table className="versions-table">
      <thead>
        <tr>
          <th scope="col">Version</th>
          <th scope="col">Share</th>
          <th scope="col">Runs</th>
          <th scope="col">Failed</th>
          {feedback.map((name) => (
            <th key={name} scope="col">
              {name}
            </th>
          ))}
          <th scope="col">Median time</th>
          <th scope="col">Tokens</th>
          <th scope="col">
            <span className="hidden">Actions</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.map((version) => {
          const name = version?.name ?? SOURCE;
          return (
            <Row
              key={name}
              app={app}
              name={name}
              version={version}
              share={shares[name]}
              lead={leading(shares)}
              scores={scoresOf.get(name)}
              feedback={feedback}
              changed={changed}
            />
          );
        })}
      </tbody>
    </table>
  );
}

type RowProps = {
  readonly app: string;
  readonly name: string;
  /** null for the code in the folder. */
  readonly version: PublishedVersion | null;
  readonly share: number | undefined;
  /** The version with the greatest share. */
  readonly lead: string;
  readonly scores: VersionScores | undefined;
  readonly feedback: readonly string[];
  readonly changed: () => Promise<unknown>;
};

function Row({ app, name, version, share, lead, scores, feedback, changed }: RowProps) {
  const serve = useMutation({ mutationFn: () => client.setTraffic(app, { [name]: 100 }), onSuccess: changed });
  const isEarlier = version !== null && (lead === SOURCE || numberOf(name) < numberOf(lead));
  const action = isEarlier ? `Roll back to ${name}` : `Serve all with ${name}`;
  return (
    <tr className={share === undefined ? "" : "serves"}>
      <th scope="row">
        <div className="version-head">
          <span className="version-name">{name}</span>
          <span className="version-message">{version === null ? "the code in the folder" : version.message || <span className="soft">no message</span>}</span>
          {version !== null && (
            <span className="soft version-when">
              <Moment at={version.publishedAt} />
              {version.publishedBy !== undefined && ` by ${version.publishedBy}`} · <code>{version.version}</code>
            </span>
          )}
        </div>
      </th>
      <td data-label="Share">
        {share === undefined ? (
          <span className="soft">–</span>
        ) : (
          <span className="share">
            <span className="share-bar" aria-hidden="true">
              <span style={{ width: `${share}%` }} />
            </span>
            {share} %
          </span>
        )}
      </td>
      <td data-label="Runs">{scores === undefined ? <span className="soft">0</span> : <Runs app={app} version={version} scores={scores} />}</td>
      <td data-label="Failed">
        {scores !== undefined && scores.ended > 0 ? (
          <>
            {percent(scores.failed / scores.ended)}
            <Chance compared={scores.failures} isWorse={(difference) => difference > 0} />
          </>
        ) : (
          <span className="soft">–</span>
        )}
      </td>
      {feedback.map((one) => {
        const rated = scores?.feedback[one];
        return (
          <td key={one} data-label={one}>
            {rated === undefined ? (
              <span className="soft">–</span>
            ) : (
              <>
                <span>
                  {rated.mean.toFixed(2)} <span className="soft">of {count(rated.count)}</span>
                </span>
                <Chance compared={rated.comparison} isWorse={(difference) => difference < 0} />
              </>
            )}
          </td>
        );
      })}
      <td data-label="Median time">{scores?.medianSeconds != null ? duration(scores.medianSeconds) : <span className="soft">–</span>}</td>
      <td data-label="Tokens">{scores?.meanTokens != null ? count(Math.round(scores.meanTokens)) : <span className="soft">–</span>}</td>
      <td className="version-actions">
        {share !== 100 && (
          <button
            type="button"
            className="button small"
            disabled={serve.isPending}
            onClick={() => confirm(`${action}? It then serves all sessions of ${app}, from their next run on.`) && serve.mutate()}
          >
            <Undo2 size={14} aria-hidden="true" />
            {action}
          </button>
        )}
        {serve.isError && <ErrorLine error={serve.error} />}
      </td>
    </tr>
  );
}

function Runs({ app, version, scores }: { app: string; version: PublishedVersion | null; scores: VersionScores }) {
  const text = count(scores.runs);
  const title = `${count(scores.runs)} runs in ${count(scores.sessions)} sessions`;
  if (version === null) return <span title={title}>{text}</span>;
  return (
    <Link to="/runs" search={{ app, version: version.name }} title={title}>
      {text}
    </Link>
  );
}

/** Whether a difference is more than chance. */
function Chance({ compared, isWorse }: { compared: MeanComparison | null; isWorse: (difference: number) => boolean }) {
  if (compared === null || compared.difference === 0) return null;
  const direction = compared.difference > 0 ? "higher" : "lower";
  if (!compared.isSignificant) return <span className="chance soft">may be chance</span>;
  return <span className={`chance ${isWorse(compared.difference) ? "worse" : "better"}`}>significantly {direction}</span>;
}

function Differences({ scores }: { scores: ListVersionScoresResponse }) {
  const lines = scores.versions.flatMap(({ name, failures, feedback }) => [
    ...(failures === null ? [] : [{ name, what: "failed runs", text: failures.text }]),
    ...Object.entries(feedback).flatMap(([what, { comparison }]) => (comparison === null ? [] : [{ name, what, text: comparison.text }])),
  ]);
  if (lines.length === 0) return null;
  return (
    <details className="differences">
      <summary>Differences from {scores.baseline}, with their 95 % intervals</summary>
      <ul>
        {lines.map(({ name, what, text }) => (
          <li key={`${name} ${what}`}>
            <strong>{name}</strong>, {what}: {text}
          </li>
        ))}
      </ul>
      {scores.isLimited && scores.runsFrom !== null && (
        <p className="soft">
          Runs since <Moment at={scores.runsFrom} /> are counted.
        </p>
      )}
    </details>
  );
}

/** names: newest first. */
function Compare({ app, names }: { app: string; names: readonly string[] }) {
  const { left = names[1] ?? names[0] ?? SOURCE, right = names.length > 1 ? (names[0] ?? SOURCE) : SOURCE } = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const choose = (first: string, second: string) => void navigate({ to: "/versions", search: { app, left: first, right: second }, replace: true });
  return (
    <section className="compare-versions" aria-label="Compare">
      <div className="row">
        <h2>Compare</h2>
        <VersionSelect label="Earlier version" names={names} value={left} choose={(name) => choose(name, right)} />
        <span className="soft">with</span>
        <VersionSelect label="Later version" names={names} value={right} choose={(name) => choose(left, name)} />
      </div>
      {left === right ? <p className="soft">Choose two versions.</p> : <Comparison app={app} first={left} second={right} />}
    </section>
  );
}

type SelectProps = { readonly label: string; readonly names: readonly string[]; readonly value: string; readonly choose: (name: string) => void };

function VersionSelect({ label, names, value, choose }: SelectProps) {
  return (
    <select className="select" aria-label={label} value={value} onChange={(event) => choose(event.target.value)}>
      {[SOURCE, ...names].map((name) => (
        <option key={name}>{name}</option>
      ))}
    </select>
  );
}

function numberOf(name: string): number {
  return name === SOURCE ? Number.POSITIVE_INFINITY : Number(name.slice(1));
}

function percent(share: number): string {
  return `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}
