import { Link } from "@tanstack/react-router";
import type { Figures, Statistics } from "greenroom-client";
import { ArrowDown, ArrowUp } from "lucide-react";
import type { Search } from "../pages/filters";
import { type NamedGroup, callCount, failureCount, groupsOf, knownCost, runCount, tokenCount } from "./figures";
import { count, money, seconds, share } from "./format";
import type { Grouping, Percentile } from "./view";

type Column = {
  readonly id: string;
  readonly name: string;
  readonly of: (figures: Figures) => number | null;
  readonly format: (value: number, figures: Figures) => string;
};

type GroupTableProps = {
  readonly statistics: Statistics;
  readonly grouping: Grouping;
  readonly percentile: Percentile;
  /** A column's id, with a minus sign before it for the largest first; "" leaves the server's order. */
  readonly sort: string;
  readonly setSort: (sort: string) => void;
  /** The address of the page with a group's figures only. */
  readonly searchOf: (key: string) => Search;
  /** Shows more groups; null if there are no more to show. */
  readonly more: (() => void) | null;
};

const HEADS = { app: "App", model: "Model", tool: "Tool", user: "User" } as const;

function columnsOf(grouping: Grouping, percentile: Percentile, currency: string): readonly Column[] {
  const ofCalls = grouping === "model" || grouping === "tool";
  const countOf = ofCalls ? callCount : runCount;
  const all: (Column | null)[] = [
    { id: "count", name: ofCalls ? "Calls" : "Runs", of: countOf, format: count },
    { id: "failed", name: "Failed", of: failureCount, format: (value, figures) => (value === 0 ? "0" : `${count(value)} (${share(value, countOf(figures))})`) },
    ofCalls ? null : { id: "first", name: `First text, ${percentile}`, of: ({ firstText }) => firstText?.[percentile] ?? null, format: seconds },
    { id: "duration", name: `${ofCalls ? "Duration" : "To the end"}, ${percentile}`, of: ({ duration }) => duration?.[percentile] ?? null, format: seconds },
    grouping === "tool" ? null : { id: "tokens", name: "Tokens", of: tokenCount, format: count },
    grouping === "tool" ? null : { id: "cost", name: "Cost", of: knownCost, format: money(currency) },
  ];
  return all.filter((column) => column !== null);
}

/** The groups with their figures of the whole range. */
export function GroupTable({ statistics, grouping, percentile, sort, setSort, searchOf, more }: GroupTableProps) {
  const columns = columnsOf(grouping, percentile, statistics.currency ?? "USD");
  const isDescending = sort.startsWith("-");
  const sortedBy = isDescending ? sort.slice(1) : sort;
  const groups = sorted(groupsOf(statistics), columns.find(({ id }) => id === sortedBy)?.of, sortedBy === "name", isDescending);
  const heads = [{ id: "name", name: HEADS[grouping] }, ...columns];
  return (
    <div className="group-table" tabIndex={0} role="group" aria-label="Groups">
      <table>
        <thead>
          <tr>
            {heads.map(({ id, name }) => {
              const isSorted = id === sortedBy;
              const Icon = isDescending ? ArrowDown : ArrowUp;
              const next = isSorted && isDescending ? id : `-${id}`;
              return (
                <th
                  key={id}
                  scope="col"
                  className={id === "name" ? undefined : "number"}
                  aria-sort={!isSorted ? undefined : isDescending ? "descending" : "ascending"}
                >
                  <button type="button" onClick={() => setSort(id === "name" && !isSorted ? "name" : next)}>
                    {name}
                    {isSorted && <Icon size={12} aria-hidden="true" />}
                  </button>
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {groups.map(({ group, name, isRest }) => (
            <tr key={isRest ? " others" : name}>
              <th scope="row">
                {isRest ? (
                  <span className="soft">{name}</span>
                ) : (
                  <Link to="/statistics" search={searchOf(name)} title={`Figures of ${name} only`}>
                    {name}
                  </Link>
                )}
              </th>
              {columns.map(({ id, of, format }) => {
                const value = of(group.total);
                return (
                  <td key={id} className="number">
                    {value === null ? "–" : format(value, group.total)}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
      {more !== null && (
        <button type="button" className="button small" onClick={more}>
          Show more groups
        </button>
      )}
    </div>
  );
}

/** The sum of other groups stays last. */
function sorted(
  groups: readonly NamedGroup[],
  of: Column["of"] | undefined,
  isByName: boolean,
  isDescending: boolean,
): readonly NamedGroup[] {
  if (of === undefined && !isByName) return groups;
  const direction = isDescending ? -1 : 1;
  const compare = (left: NamedGroup, right: NamedGroup) => {
    if (of === undefined) return left.name.localeCompare(right.name);
    return (of(left.group.total) ?? -1) - (of(right.group.total) ?? -1);
  };
  return [...groups].sort((left, right) => Number(left.isRest) - Number(right.isRest) || direction * compare(left, right));
}
