import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type AuditEntry, type AuditState, GreenroomError } from "greenroom-client";
import { Ban, Check, Download, ShieldAlert, ShieldCheck } from "lucide-react";
import { useState } from "react";
import { DEFAULT_USER, client } from "../api";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { Moment } from "../components/Time";
import { Facts } from "../inspector/Parts";
import "../inspector/inspector.css";
import { AppFilter, ChoiceFilter, FilterForm } from "../pages/FilterForm";
import { AGES, type Age, type Search } from "../pages/filters";
import { TextFilter } from "../pages/TextFilter";
import { AdminPage } from "./AdminPage";
import "./audit.css";
import { ACTIONS, type AuditFilters, NO_FILTERS, parseFilters, toQuery, toSearch } from "./auditFilters";
import { linesOf } from "./auditLines";

const PAGE = 100;
const EXPORT_PAGE = 1000;
const MOST_EXPORTED = 100_000;

/** The audit trail: who did what, newest first, and whether it was found changed. */
export function AuditPage() {
  const filters = parseFilters(useSearch({ strict: false }) as Search);
  const navigate = useNavigate();
  const set = (change: Partial<AuditFilters>) =>
    void navigate({ to: "/admin/audit", search: toSearch({ ...filters, ...change }), replace: true });
  const pages = useInfiniteQuery({
    queryKey: ["audit", filters],
    queryFn: ({ pageParam }) => client.listAuditEntries({ ...toQuery(filters, Date.now() / 1000), limit: PAGE, ...pageParam }),
    initialPageParam: {},
    getNextPageParam: ({ nextPageToken }) => (nextPageToken == null ? undefined : { page_token: nextPageToken }),
    refetchOnWindowFocus: false, // each request is an entry of the trail itself
    retry: false,
  });
  const entries = pages.data?.pages.flatMap((page) => page.entries ?? []);
  const isFiltered = Object.keys(toSearch(filters)).length > 0;
  const isOff = pages.error instanceof GreenroomError && pages.error.status === 501;
  return (
    <AdminPage title="Audit trail" actions={entries !== undefined && <Export filters={filters} />}>
      {isOff ? (
        <Empty title="This server keeps no audit trail">
          <p>
            <code>greenroom audit keygen audit.pem</code> makes a key, and the setting <code>audit.key</code> switches the trail on. It then
            says who called, approved, changed and read what, and who was refused.
          </p>
        </Empty>
      ) : (
        <>
          {pages.isError && <ErrorLine error={pages.error} />}
          <State state={pages.data?.pages[0]?.state ?? undefined} />
          <Filters filters={filters} set={set} clear={isFiltered ? () => set(NO_FILTERS) : null} shown={entries ?? []} />
          {entries === undefined && !pages.isError && <p className="soft">Loading…</p>}
          {entries?.length === 0 && isFiltered && (
            <Empty title="No entry matches these filters">
              <p>
                <button type="button" className="button" onClick={() => set(NO_FILTERS)}>
                  Show all entries
                </button>
              </p>
            </Empty>
          )}
          {entries !== undefined && entries.length > 0 && (
            <ul className="audit-list" aria-label="Entries">
              {entries.map((entry) => (
                <Row key={`${entry.chain} ${entry.sequence}`} entry={entry} />
              ))}
            </ul>
          )}
          {pages.hasNextPage && (
            <button type="button" className="button audit-more" disabled={pages.isFetching} onClick={() => void pages.fetchNextPage()}>
              Show older entries
            </button>
          )}
        </>
      )}
    </AdminPage>
  );
}

function State({ state }: { state: AuditState | undefined }) {
  const { signed, broken } = state ?? {};
  if (broken != null) {
    return (
      <div className="error-line" role="alert">
        <ShieldAlert size={16} aria-hidden="true" />
        <span className="spread">
          A server has found <Moment at={broken.time / 1000} /> that the trail was changed: {broken.target}. <code>greenroom audit verify</code> names
          all places.
        </span>
      </div>
    );
  }
  if (signed == null) return null;
  return (
    <p className="status ok audit-state">
      <ShieldCheck size={16} aria-hidden="true" />
      <span>
        Signed <Moment at={signed.time / 1000} />, up to entry {signed.sequence} of chain {signed.chain}, with the key <code>{signed.signedBy}</code>. No
        server has found a change before signing. <code>greenroom audit verify</code> checks the whole trail.
      </span>
    </p>
  );
}

type FiltersProps = {
  readonly filters: AuditFilters;
  readonly set: (change: Partial<AuditFilters>) => void;
  readonly clear: (() => void) | null;
  readonly shown: readonly AuditEntry[];
};

function Filters({ filters, set, clear, shown }: FiltersProps) {
  const own = filters.action === "" ? [] : [filters.action];
  const actions = [...new Set<string>([...ACTIONS, ...own, ...shown.map((entry) => entry.action)])].sort();
  return (
    <FilterForm clear={clear}>
      <ChoiceFilter label="Action" all="All actions" value={filters.action} values={actions} nameOf={(name) => name} set={(action) => set({ action })} />
      <ChoiceFilter
        label="Outcome"
        all="All outcomes"
        value={filters.outcome}
        values={["success", "refused"] as const}
        nameOf={(name) => (name === "success" ? "Done" : "Refused")}
        set={(outcome) => set({ outcome })}
      />
      <TextFilter key={`s${filters.subject}`} label="Who" value={filters.subject} set={(subject) => set({ subject })} />
      <AppFilter value={filters.app} set={(app) => set({ app })} />
      <TextFilter key={`e${filters.session}`} label="Session" value={filters.session} set={(session) => set({ session })} />
      <ChoiceFilter
        label="Time"
        all="Any time"
        value={filters.age}
        values={Object.keys(AGES) as Age[]}
        nameOf={(age) => `Last ${age}`}
        set={(age) => set({ age })}
      />
    </FilterForm>
  );
}

function Row({ entry }: { entry: AuditEntry }) {
  const [isOpen, setOpen] = useState(false);
  const isRefused = entry.outcome === "refused";
  const Icon = isRefused ? Ban : Check;
  return (
    <li>
      <button type="button" className="audit-row" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <span className="audit-time soft">
          <Moment at={entry.time / 1000} />
        </span>
        <span className={`status ${isRefused ? "bad" : "idle"}`}>
          <Icon size={14} aria-hidden="true" />
          <code className="cut">{entry.action}</code>
          <span className="hidden">{isRefused ? "refused" : "done"}</span>
        </span>
        <span className="audit-subject cut">{entry.subject ?? "–"}</span>
        <span className="audit-what soft cut">{summary(entry)}</span>
      </button>
      {isOpen && <Details entry={entry} />}
    </li>
  );
}

/** What the entry concerns, in a line. */
function summary(entry: AuditEntry): string {
  const { appName, userId, sessionId, tool, decision, check, where, target, error } = entry;
  const place = [appName, userId, sessionId].filter((part) => part != null).join(" / ");
  const checked = check == null ? null : `${check} in ${(where ?? "").replace("_", " ")}`;
  return [decision, tool, checked, error, place, place === "" ? target : null].filter((part) => part != null && part !== "").join(" · ");
}

function Details({ entry }: { entry: AuditEntry }) {
  const { appName, userId, sessionId, time, heads, cuts, ...others } = entry;
  const named = (name: string) => name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`).replace(/^./, (letter) => letter.toUpperCase());
  const places = (list: typeof heads) => list?.map((head) => `${head.chain}: ${head.sequence}`).join(", ");
  return (
    <div className="audit-details">
      <Facts
        facts={[
          ["Time", new Date(time).toISOString()],
          ["App", appName],
          ["User", userId],
          [
            "Session",
            sessionId != null && appName != null && (
              <Link to="/apps/$app/sessions/$session" params={{ app: appName, session: sessionId }} search={userId == null || userId === DEFAULT_USER ? {} : { user: userId }}>
                {sessionId}
              </Link>
            ),
          ],
          ...Object.entries(others).map(([name, value]) => [named(name), String(value ?? "")] as const),
          ["Heads", places(heads)],
          ["Cuts", places(cuts)],
        ]}
      />
    </div>
  );
}

/** Downloads the entries that the filters select. */
function Export({ filters }: { filters: AuditFilters }) {
  const [count, setCount] = useState<number | null>(null);
  const [error, setError] = useState<unknown>(null);

  async function download() {
    setError(null);
    setCount(0);
    try {
      const { entries, isWhole } = await fetchAll(filters, setCount);
      save(linesOf(entries));
      if (!isWhole) setError(new Error(`The file has the newest ${entries.length} entries; greenroom audit export writes all.`));
    } catch (failure) {
      setError(failure);
    }
    setCount(null);
  }

  return (
    <>
      <button type="button" className="button" disabled={count !== null} onClick={() => void download()}>
        <Download size={14} aria-hidden="true" />
        {count === null ? "Export" : `Exporting ${count.toLocaleString("en")}`}
      </button>
      {error !== null && <ErrorLine error={error} />}
    </>
  );
}

async function fetchAll(filters: AuditFilters, progress: (count: number) => void) {
  const query = { ...toQuery(filters, Date.now() / 1000), limit: EXPORT_PAGE };
  const entries: AuditEntry[] = [];
  let token: string | null | undefined;
  do {
    const page = await client.listAuditEntries({ ...query, ...(token == null ? {} : { page_token: token }) });
    entries.push(...(page.entries ?? []));
    token = page.nextPageToken;
    progress(entries.length);
  } while (token != null && entries.length < MOST_EXPORTED);
  return { entries, isWhole: token == null };
}

function save(lines: string) {
  const url = URL.createObjectURL(new Blob([lines], { type: "application/jsonl" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = "audit-trail.jsonl";
  link.click();
  URL.revokeObjectURL(url);
}
