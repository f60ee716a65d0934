import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { GreenroomError, type MemoryEntry } from "greenroom-client";
import { useId, useState } from "react";
import { client } from "../api";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { Moment } from "../components/Time";
import { FilterForm } from "../pages/FilterForm";
import type { Search } from "../pages/filters";
import { TextFilter } from "../pages/TextFilter";
import { reload } from "../reload";
import { chosenUser } from "../user";
import { AdminPage } from "./AdminPage";
import { AppChoice, useChosenApp } from "./AppChoice";
import { AdminForm } from "./Form";

const PAGE = 50;

/** The memories of a user in an app: search, change, delete. */
export function MemoriesPage() {
  const { app: wanted, user = chosenUser(), query = "" } = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const app = useChosenApp(wanted);
  const set = (change: Search) => void navigate({ to: "/admin/memories", search: { app, user, ...(query === "" ? {} : { query }), ...change }, replace: true });
  const pages = useInfiniteQuery({
    queryKey: ["admin", "memories", app, user, query],
    queryFn: ({ pageParam }) => client.listMemories(app ?? "", user, { limit: PAGE, ...(query === "" ? {} : { query }), ...pageParam }),
    initialPageParam: {},
    getNextPageParam: ({ nextPageToken }) => (nextPageToken == null ? undefined : { page_token: nextPageToken }),
    enabled: app !== undefined,
    retry: false,
  });
  const found = pages.data?.pages.flatMap((page) => page.memories ?? []);
  const isOff = pages.error instanceof GreenroomError && pages.error.status === 501;
  return (
    <AdminPage title="Memories" actions={app !== undefined && <AppChoice app={app} set={(name) => set({ app: name })} />}>
      <FilterForm clear={query === "" ? null : () => set({ query: undefined })}>
        <TextFilter key={`u${user}`} label="User" value={user} set={(name) => name !== "" && set({ user: name })} />
        <TextFilter key={`q${query}`} label="Search" value={query} set={(text) => set({ query: text === "" ? undefined : text })} />
      </FilterForm>
      {isOff ? (
        <Empty title="This memory service lists no memories">
          <p>Those in memory, in SQLite and in PostgreSQL do.</p>
        </Empty>
      ) : (
        pages.isError && <ErrorLine error={pages.error} />
      )}
      {found === undefined && !pages.isError && <p className="soft">Loading…</p>}
      {found?.length === 0 && (
        <Empty title={query === "" ? `No memories of ${user}` : "No memory matches"}>
          <p>
            Agents remember with the tools and callbacks of an app, or after each run with <code>App(memory_policy=MemoryPolicy())</code>.
          </p>
        </Empty>
      )}
      {app !== undefined && found !== undefined && found.length > 0 && (
        <ul className="admin-list" aria-label="Memories">
          {found.map((memory) => (
            <Memory key={memory.id} app={app} user={user} memory={memory} />
          ))}
        </ul>
      )}
      {pages.hasNextPage && (
        <button type="button" className="button admin-more" disabled={pages.isFetching} onClick={() => void pages.fetchNextPage()}>
          Show more memories
        </button>
      )}
    </AdminPage>
  );
}

function textOf({ content }: MemoryEntry): string {
  return (content.parts ?? []).flatMap((part) => (part.text == null || part.thought === true ? [] : [part.text])).join("\n");
}

function Memory({ app, user, memory }: { app: string; user: string; memory: MemoryEntry }) {
  const queries = useQueryClient();
  const [isEdited, setEdited] = useState(false);
  const id = memory.id ?? "";
  const remove = useMutation({
    mutationFn: () => client.deleteMemory(app, user, id),
    onSuccess: () => reload(queries, ["admin", "memories"]),
  });
  const at = memory.timestamp == null ? Number.NaN : Date.parse(memory.timestamp) / 1000;
  return (
    <li>
      <div className="admin-row">
        <span className="soft">{Number.isNaN(at) ? "No time" : <Moment at={at} />}</span>
        <span className="admin-main">
          <span className="wrapped admin-text">{textOf(memory)}</span>
          <span className="admin-facts soft">
            {memory.author ?? "unknown author"} · <code>{id}</code>
          </span>
        </span>
        <span className="row">
          <button type="button" className="button small" onClick={() => setEdited(!isEdited)}>
            Change
          </button>
          <button type="button" className="button small danger" disabled={remove.isPending} onClick={() => confirm("Delete this memory?") && remove.mutate()}>
            Delete
          </button>
        </span>
      </div>
      {remove.isError && <ErrorLine error={remove.error} />}
      {isEdited && <MemoryForm app={app} user={user} memory={memory} close={() => setEdited(false)} />}
    </li>
  );
}

function MemoryForm({ app, user, memory, close }: { app: string; user: string; memory: MemoryEntry; close: () => void }) {
  const queries = useQueryClient();
  const [text, setText] = useState(() => textOf(memory));
  const id = useId();

  async function submit() {
    await client.changeMemory(app, user, memory.id ?? "", { content: { ...memory.content, parts: [{ text }] } });
    await reload(queries, ["admin", "memories"]);
    close();
  }

  return (
    <AdminForm label="Change the memory" action="Save" submit={submit} cancel={close}>
      <div className="admin-field wide">
        <label htmlFor={id}>Text</label>
        <textarea id={id} className="textarea" rows={3} required value={text} onChange={(event) => setText(event.target.value)} />
      </div>
    </AdminForm>
  );
}
