import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import type { DelegateRequest, HumanRequest, JsonObject, ListRequestsResponse } from "greenroom-client";
import { KeyRound, MessageCircleQuestionMark, ShieldQuestionMark } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { DEFAULT_USER, call, client } from "../api";
import { AgentName } from "../components/AgentName";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { Moment, Time } from "../components/Time";
import RequestForm from "../requests/RequestForm";
import { answerOf, contentOf, isOpen } from "../requests/requests";
import { useRequests } from "../requests/useRequests";
import { titleOf } from "../timeline/requests";
import { AppFilter, ChoiceFilter, FilterForm, NothingMatches } from "./FilterForm";
import type { Search } from "./filters";
import { type InboxFilters, KINDS, WAITED, type Waited, hasWaited, isFiltered, parseFilters, toQuery, toSearch } from "./inboxFilters";
import { TextFilter } from "./TextFilter";
import { useInboxKeys } from "./useInboxKeys";
import "./pages.css";
import "./inbox.css";

const PAGE = 200;
const NO_FILTERS: InboxFilters = { app: "", kind: "", tool: "", approver: "", waited: "" };
const NONE: readonly HumanRequest[] = [];

const KIND_NAMES = { approval: "Approval", login: "Login", input: "Input" } as const;
const ICONS = { approval: ShieldQuestionMark, login: KeyRound, input: MessageCircleQuestionMark } as const;

/** Open requests to people over all sessions, kept up to date, each answered in its place. */
export function InboxPage() {
  const search = useSearch({ strict: false }) as Search;
  const filters = parseFilters(search);
  const navigate = useNavigate();
  const path = `/requests?${toQuery(filters, PAGE, null)}`;
  const newest = useRequests(path, filters.approver);
  const next = newest.page?.nextPageToken ?? null;
  const older = useInfiniteQuery({
    queryKey: ["requests", "older", path, next],
    queryFn: ({ pageParam }) => call<ListRequestsResponse>("GET", `/requests?${toQuery(filters, PAGE, pageParam)}`),
    initialPageParam: next,
    getNextPageParam: (page) => page.nextPageToken,
    enabled: false,
  });
  const [answered, setAnswered] = useState<HumanRequest | null>(null);
  const requests = useMemo(() => {
    const first = newest.page?.requests ?? NONE;
    const known = new Set(first.map(({ id }) => id));
    return [...first, ...(older.data?.pages.flatMap((page) => (page.requests ?? []).filter(({ id }) => !known.has(id))) ?? [])];
  }, [newest.page, older.data]);
  const decided = answered !== null && !isOpen(answered) ? answered.id : null;
  const shown = requests.filter((request) => request.id !== decided && hasWaited(request, filters, Date.now() / 1000));
  const hasMore = older.data === undefined ? next !== null : older.hasNextPage;
  const error = newest.error ?? older.error;

  const set = (change: Partial<InboxFilters>) =>
    void navigate({ to: "/inbox", search: toSearch({ ...filters, ...change }), replace: true });
  const choose = (id: string | undefined) =>
    void navigate({ to: "/inbox", search: { ...toSearch(filters), ...(id === undefined ? {} : { request: id }) }, replace: true });
  const chosen = shown.find(({ id }) => id === search.request);
  const open = () => chosen !== undefined && void navigate(sessionOf(chosen));
  useInboxKeys({ ids: shown.map(({ id }) => id), chosen: chosen?.id, choose, open });

  /** The next request takes the place of one that is decided. */
  function onAnswer(request: HumanRequest) {
    setAnswered(request);
    if (isOpen(request)) return;
    const at = shown.findIndex(({ id }) => id === request.id);
    choose((shown[at + 1] ?? shown[at - 1])?.id);
  }

  return (
    <main className="page inbox">
      <h1 className="hidden">Inbox</h1>
      <Filters filters={filters} set={set} />
      {error !== null && <ErrorLine error={error} />}
      <p role="status" className={answered === null ? "hidden" : "row"}>
        {answered !== null && <Outcome request={answered} />}
      </p>
      {newest.page === undefined && error === null && <p className="soft">Loading…</p>}
      {newest.page !== undefined && shown.length === 0 && <NoRequests filters={filters} clear={() => set(NO_FILTERS)} />}
      {shown.length > 0 && (
        <ol className="inbox-list" aria-label="Requests">
          {shown.map((request) => (
            <Row
              key={request.id}
              request={request}
              isChosen={request === chosen}
              toggle={() => choose(request === chosen ? undefined : request.id)}
              onAnswer={onAnswer}
            />
          ))}
        </ol>
      )}
      {hasMore && (
        <button
          type="button"
          className="button"
          disabled={older.isFetching}
          onClick={() => void (older.data === undefined ? older.refetch() : older.fetchNextPage())}
        >
          Older requests
        </button>
      )}
      {shown.length > 0 && (
        <p className="soft inbox-keys">
          <kbd>j</kbd> <kbd>k</kbd> choose · <kbd>y</kbd> allow · <kbd>n</kbd> refuse · <kbd>Enter</kbd> open the session
        </p>
      )}
    </main>
  );
}

function sessionOf({ appName, sessionId, userId }: HumanRequest) {
  const search = userId === DEFAULT_USER ? {} : { user: userId };
  return { to: "/apps/$app/sessions/$session", params: { app: appName, session: sessionId }, search } as const;
}

function Filters({ filters, set }: { filters: InboxFilters; set: (change: Partial<InboxFilters>) => void }) {
  return (
    <FilterForm clear={isFiltered(filters) ? () => set(NO_FILTERS) : null}>
      <AppFilter value={filters.app} set={(app) => set({ app })} />
      <ChoiceFilter
        label="Kind"
        all="All kinds"
        value={filters.kind}
        values={KINDS}
        nameOf={(kind) => KIND_NAMES[kind]}
        set={(kind) => set({ kind })}
      />
      <TextFilter key={`t${filters.tool}`} label="Tool" value={filters.tool} set={(tool) => set({ tool })} />
      <TextFilter key={`a${filters.approver}`} label="Approver" value={filters.approver} set={(approver) => set({ approver })} />
      <ChoiceFilter
        label="Waiting"
        all="Any age"
        value={filters.waited}
        values={Object.keys(WAITED) as Waited[]}
        nameOf={(waited) => `Older than ${waited}`}
        set={(waited) => set({ waited })}
      />
    </FilterForm>
  );
}

function NoRequests({ filters, clear }: { filters: InboxFilters; clear: () => void }) {
  if (isFiltered(filters)) return <NothingMatches what="request" clear={clear} />;
  return (
    <Empty title="Nobody is asked for anything">
      <p>
        Approvals of tools, logins and input that runs wait for are listed here, of all sessions. A tool asks for an approval with{" "}
        <code>FunctionTool(delete_rows, require_confirmation=True)</code>.
      </p>
    </Empty>
  );
}

type RowProps = {
  readonly request: HumanRequest;
  readonly isChosen: boolean;
  readonly toggle: () => void;
  readonly onAnswer: (request: HumanRequest) => void;
};

function Row({ request, isChosen, toggle, onAnswer }: RowProps) {
  const row = useRef<HTMLLIElement>(null);
  useEffect(() => {
    if (isChosen) row.current?.scrollIntoView({ block: "nearest" });
  }, [isChosen]);
  const content = contentOf(request);
  const Icon = ICONS[request.kind];
  return (
    <li ref={row} aria-current={isChosen ? "true" : undefined}>
      <button type="button" className="inbox-row" aria-expanded={isChosen} onClick={toggle}>
        <span className="status wait" title={KIND_NAMES[request.kind]}>
          <Icon size={16} aria-hidden="true" />
        </span>
        <span className="inbox-title cut">{titleOf(content)}</span>
        <span className="inbox-about soft cut">{content.type === "approval" ? shortened(content.args) : ""}</span>
        <span className="inbox-app cut">{request.appName}</span>
        <span className="inbox-by soft cut" title="May answer">
          {approversOf(request).join(", ")}
        </span>
        <span className="inbox-age soft">
          <Time at={request.createdAt} isRelative />
        </span>
      </button>
      {isChosen && <Detail request={request} onAnswer={onAnswer} />}
    </li>
  );
}

function shortened(args: JsonObject): string {
  return Object.entries(args)
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ")
    .slice(0, 200);
}

function Detail({ request, onAnswer }: { request: HumanRequest; onAnswer: (request: HumanRequest) => void }) {
  const approvers = request.approvers ?? [];
  const { policy } = request;
  const [entered, setPerson] = useState(approvers.includes(request.userId) ? request.userId : (approvers[0] ?? ""));
  // One who has answered is no longer among those who may; with a scope, others may, too.
  const person = approvers.includes(entered) || policy?.scope != null ? entered : (approvers[0] ?? "");
  const content = contentOf(request);
  // Without a person, the server takes the caller or, where it knows no callers, the session's user.
  const isForOthers = request.mayAnswer !== true && approvers.join() !== request.userId;
  const chosen = isForOthers && person !== "" ? person : undefined;

  async function send(response: JsonObject) {
    const answer = { ...answerOf(request.kind, response), ...(chosen === undefined ? {} : { userId: chosen }) };
    onAnswer((await client.answerRequest(request.id, answer)).request);
  }

  return (
    <section className="inbox-detail" aria-label={titleOf(content)}>
      <p className="inbox-origin">
        <AgentName name={request.agent} />
        <span className="soft">
          in the session <Link {...sessionOf(request)}>{request.sessionId}</Link> of {request.userId}, <Moment at={request.createdAt} />
        </span>
      </p>
      <Votes request={request} />
      <RequestForm key={request.answers?.length ?? 0} request={content} send={send} />
      {isForOthers && (
        <label className="row">
          <span className="soft">Answer as</span>
          {policy?.scope == null ? (
            <select className="select" value={person} onChange={(event) => setPerson(event.target.value)}>
              {approvers.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          ) : (
            <input className="input" value={person} onChange={(event) => setPerson(event.target.value)} />
          )}
        </label>
      )}
      {policy?.mayDelegate === true && <Delegate request={request} from={chosen} />}
    </section>
  );
}

/** The answers so far, how many are needed, and what happens without them. */
function Votes({ request }: { request: HumanRequest }) {
  const { policy, answers = [], delegations = [], deadline } = request;
  return (
    <>
      {policy !== undefined && (
        <p className="soft">
          {policy.required ?? 1} of {approversOf(request).join(", ")} {(policy.required ?? 1) > 1 ? "have" : "has"} to allow it
          {deadline != null && (
            <>
              ; at <Moment at={deadline} /> it is {policy.default === "approve" ? "allowed" : "refused"}
            </>
          )}
          .
        </p>
      )}
      {delegations.map(({ fromUserId, toUserId, at, comment }) => (
        <p key={fromUserId}>
          <strong>{toUserId}</strong> answers in place of <strong>{fromUserId}</strong>, <Time at={at} />
          {comment != null && `: “${comment}”`}
        </p>
      ))}
      {answers.map(({ userId, confirmed, answeredAt, comment }) => (
        <p key={userId}>
          {confirmed === false ? "Refused" : "Allowed"} by <strong>{userId}</strong>, <Time at={answeredAt} />
          {comment != null && `: “${comment}”`}
        </p>
      ))}
    </>
  );
}

/** Those who may answer or have answered: users, and the scope of callers. */
function approversOf({ policy, approvers = [], userId }: HumanRequest): readonly string[] {
  if (policy === undefined) return approvers.length === 0 ? [userId] : approvers;
  const scope = policy.scope == null ? [] : [`all with the scope ${policy.scope}`];
  return [...new Set([...(policy.users ?? []), ...approvers, ...scope])];
}

/** Names somebody else to answer. from: in whose place, if that isn't the caller. */
function Delegate({ request, from }: { request: HumanRequest; from: string | undefined }) {
  const [user, setUser] = useState("");
  const delegate = useMutation({
    mutationFn: () => {
      const body: DelegateRequest = { userId: user.trim(), ...(from === undefined ? {} : { fromUserId: from }) };
      return client.delegateRequest(request.id, body);
    },
    onSuccess: () => setUser(""),
  });
  return (
    <details>
      <summary>Let somebody else answer</summary>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault();
          delegate.mutate();
        }}
      >
        <input className="input" aria-label="User who answers" placeholder="User" required value={user} onChange={(event) => setUser(event.target.value)} />
        <button type="submit" className="button" disabled={delegate.isPending || user.trim() === ""}>
          Delegate
        </button>
      </form>
      {delegate.isError && <ErrorLine error={delegate.error} />}
    </details>
  );
}

/** What became of the request that was answered last. */
function Outcome({ request }: { request: HumanRequest }) {
  const subject = request.tool ?? KIND_NAMES[request.kind];
  const said = request.confirmed == null ? "Answered" : request.confirmed ? "Allowed" : "Refused";
  return (
    <>
      <span>{isOpen(request) ? `Your answer about ${subject} is kept; others have to answer, too.` : `${said}: ${subject}.`}</span>
      <Link {...sessionOf(request)}>Open the session</Link>
    </>
  );
}
