import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { type SessionPlace, client, titleOf } from "../api";
import { reload } from "../reload";

/** The cached title: of the state at the session's creation, until the chat page finds a later one in the log. */
export function titleKey(place: SessionPlace) {
  return ["title", place.app, place.user, place.session] as const;
}

/** The session's title; a click or Enter renames it in place. */
export function SessionTitle({ place }: { place: SessionPlace }) {
  const queries = useQueryClient();
  const session = useQuery({
    queryKey: titleKey(place),
    queryFn: async () => titleOf(await client.getSession(place, { untilSeq: 0 })),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const [draft, setDraft] = useState<string | null>(null);
  const title = session.data ?? place.session;

  async function save() {
    const wanted = draft?.trim();
    setDraft(null);
    if (wanted === undefined || wanted === title) return;
    await client.patchSession(place, { title: wanted });
    queries.setQueryData(titleKey(place), wanted || place.session);
    await reload(queries, ["sessions", place.app]);
  }

  if (draft === null) {
    return (
      <button type="button" className="session-title" onClick={() => setDraft(title)} title={`${title}: rename`}>
        {title}
      </button>
    );
  }
  return (
    <input
      className="input session-title"
      aria-label="Session title"
      autoFocus
      value={draft}
      onChange={(event) => setDraft(event.target.value)}
      onBlur={() => void save()}
      onKeyDown={(event) => {
        if (event.key === "Enter") event.currentTarget.blur();
        if (event.key === "Escape") setDraft(null);
      }}
    />
  );
}
