import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { AddCasesResponse } from "greenroom-client";
import { type FormEvent, useState } from "react";
import { client } from "../api";
import { ErrorLine } from "../components/ErrorLine";
import { listSets } from "../pages/evaluations";
import { reload } from "../reload";
import { useChat } from "./context";

const DEFAULT_SET = "complaints";

/** A form that adds an answer, with the feedback on it, to an evaluation set of the app. */
export default function MakeCase({ eventId, close }: { eventId: string; close: () => void }) {
  const { place } = useChat();
  const queries = useQueryClient();
  const sets = useQuery({ queryKey: ["eval-sets", place.app], queryFn: () => listSets(place.app) });
  const [set, setSet] = useState(DEFAULT_SET);
  const [made, setMade] = useState<AddCasesResponse | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);

  async function add(event: FormEvent) {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      setMade(await client.makeCase(place, eventId, { evalSetId: set }));
      void reload(queries, ["eval-sets", place.app]);
      void reload(queries, ["eval-set", place.app, set]);
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  }

  if (made !== null) {
    const reason = made.skipped?.[0]?.reason;
    return (
      <p className="feedback-line soft" role="status">
        <span>
          {reason === undefined ? "Added to " : `${reason}: `}
          <Link to="/evaluate" search={{ app: place.app, set: made.evalSetId }}>
            {made.evalSetId}
            {made.evalSetVersion != null && `, version ${made.evalSetVersion}`}
          </Link>
        </span>
      </p>
    );
  }
  return (
    <form
      className="feedback-form"
      aria-label="Make a case"
      onSubmit={(event) => void add(event)}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.stopPropagation();
        close();
      }}
    >
      <label className="soft" htmlFor={`set-${eventId}`}>
        Evaluation set
      </label>
      <input
        id={`set-${eventId}`}
        className="input"
        list={`sets-${eventId}`}
        pattern="[A-Za-z0-9_]+"
        title="Letters, digits and _"
        required
        autoFocus
        value={set}
        onChange={(event) => setSet(event.target.value)}
      />
      <datalist id={`sets-${eventId}`}>
        {sets.data?.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <div className="buttons">
        <button type="submit" className="button primary small" disabled={isBusy}>
          Add the case
        </button>
        <button type="button" className="button quiet small" onClick={close}>
          Cancel
        </button>
      </div>
      {error !== null && <ErrorLine error={error} />}
    </form>
  );
}
