import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { client } from "../api";
import { ErrorLine } from "../components/ErrorLine";
import { type Shares, areEqual, choices, servingShares, sum, withShare } from "./shares";

type Props = {
  readonly app: string;
  /** Newest first. */
  readonly names: readonly string[];
  readonly shares: Shares;
  readonly saved: () => Promise<unknown>;
};

/** The share of the sessions that each version serves. */
export function TrafficForm({ app, names, shares, saved }: Props) {
  const [edited, edit] = useState(servingShares(shares));
  const save = useMutation({ mutationFn: () => client.setTraffic(app, edited), onSuccess: saved });
  const total = sum(edited);
  const isChanged = !areEqual(edited, shares);
  return (
    <form
      className="traffic"
      aria-label="Traffic"
      onSubmit={(event) => {
        event.preventDefault();
        save.mutate();
      }}
    >
      <h2>Traffic</h2>
      <p className="soft">
        Shares of new sessions. A session stays with its version while that has a share; with 0&nbsp;% a version keeps the sessions it has.
      </p>
      <ul>
        {choices(names, edited).map((name) => (
          <Share key={name} name={name} share={edited[name] ?? null} set={(share) => edit(withShare(edited, name, share))} />
        ))}
      </ul>
      <div className="row">
        <button type="submit" className="button primary" disabled={!isChanged || total !== 100 || save.isPending}>
          Save the shares
        </button>
        {isChanged && (
          <button type="button" className="button" onClick={() => edit(servingShares(shares))}>
            Undo
          </button>
        )}
        <span role="status" className={total === 100 ? "soft" : "bad-sum"}>
          {total === 100 ? "100 % together" : `${total} % together: they must be 100`}
        </span>
      </div>
      {save.isError && <ErrorLine error={save.error} />}
    </form>
  );
}

type ShareProps = { readonly name: string; readonly share: number | null; readonly set: (share: number | null) => void };

function Share({ name, share, set }: ShareProps) {
  return (
    <li>
      <label className="traffic-name">
        <input type="checkbox" checked={share !== null} onChange={(event) => set(event.target.checked ? 0 : null)} />
        {name}
      </label>
      <input
        type="range"
        min={0}
        max={100}
        aria-label={`Share of ${name}`}
        value={share ?? 0}
        disabled={share === null}
        onChange={(event) => set(event.target.valueAsNumber)}
      />
      <input
        type="number"
        className="input"
        min={0}
        max={100}
        aria-label={`Share of ${name} in percent`}
        value={share ?? ""}
        disabled={share === null}
        onChange={(event) => set(event.target.value === "" ? 0 : event.target.valueAsNumber)}
      />
      <span className="soft">{share === null ? "none" : "%"}</span>
    </li>
  );
}
