import type { Figures } from "greenroom-client";
import { callCount, failureCount, knownCost, runCount, tokenCount } from "./figures";
import { change, count, money, seconds, share } from "./format";
import type { Percentile } from "./view";

type TotalsProps = {
  readonly total: Figures;
  /** The figures of the period of the same length before it; null if they are not known. */
  readonly before: Figures | null;
  readonly currency: string;
  readonly percentile: Percentile;
  readonly ofCalls: boolean;
};

type Total = {
  readonly name: string;
  readonly of: (figures: Figures) => number | null;
  readonly format: (value: number) => string;
  readonly more?: string;
};

/** The figures of the whole range, each with its change against the period before. */
export function Totals({ total, before, currency, percentile, ofCalls }: TotalsProps) {
  const countOf = ofCalls ? callCount : runCount;
  const failed = failureCount(total);
  const all: (Total | null)[] = [
    { name: ofCalls ? "Calls" : "Runs", of: countOf, format: count },
    { name: "Failed", of: failureCount, format: count, ...(failed === 0 ? {} : { more: share(failed, countOf(total)) }) },
    ofCalls ? null : { name: `First text, ${percentile}`, of: ({ firstText }) => firstText?.[percentile] ?? null, format: seconds },
    { name: `${ofCalls ? "Duration" : "To the end"}, ${percentile}`, of: ({ duration }) => duration?.[percentile] ?? null, format: seconds },
    { name: "Tokens", of: tokenCount, format: count },
    { name: "Cost", of: knownCost, format: money(currency) },
  ];
  return (
    <dl className="totals" aria-label="Whole range">
      {all
        .filter((one) => one !== null)
        .map(({ name, of, format, more }) => {
          const value = of(total);
          const changed = before === null ? null : change(of(before), value);
          return (
            <div key={name}>
              <dt>{name}</dt>
              <dd>
                <strong>{value === null ? "–" : format(value)}</strong>
                {more !== undefined && <span className="soft"> {more}</span>}
                <span className="totals-change soft" title={`Before: ${describe(before, of, format)}`}>
                  {changed === null ? " " : changed}
                </span>
              </dd>
            </div>
          );
        })}
    </dl>
  );
}

function describe(before: Figures | null, of: Total["of"], format: Total["format"]): string {
  const value = before === null ? null : of(before);
  return value === null ? "not known" : format(value);
}
