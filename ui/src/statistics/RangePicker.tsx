import { ChevronLeft, ChevronRight, ZoomOut } from "lucide-react";
import { between } from "./format";
import { type Range, SPANS, type Span, fixedRange, isOpen, lastRange, moved, widened } from "./range";

type RangePickerProps = { readonly range: Range; readonly set: (range: Range) => void };

const nowSeconds = () => Date.now() / 1000;

/** The last hour, day, week or month, and from there to any other range. */
export function RangePicker({ range, set }: RangePickerProps) {
  return (
    <div className="range-picker" role="group" aria-label="Range of time">
      <div className="statuses">
        {(Object.keys(SPANS) as Span[]).map((span) => (
          <button key={span} type="button" className="toggle" aria-pressed={range.span === span} onClick={() => set(lastRange(span, nowSeconds()))}>
            {span[0]?.toUpperCase() + span.slice(1)}
          </button>
        ))}
      </div>
      <button type="button" className="button" title="Earlier" onClick={() => set(moved(range, -1, nowSeconds()))}>
        <ChevronLeft size={16} aria-hidden="true" />
        <span className="hidden">Earlier</span>
      </button>
      <button
        type="button"
        className="button"
        title="Later"
        disabled={isOpen(range, nowSeconds())}
        onClick={() => set(moved(range, 1, nowSeconds()))}
      >
        <ChevronRight size={16} aria-hidden="true" />
        <span className="hidden">Later</span>
      </button>
      <button type="button" className="button" title="Zoom out" onClick={() => set(widened(range, nowSeconds()))}>
        <ZoomOut size={16} aria-hidden="true" />
        <span className="hidden">Zoom out</span>
      </button>
      <details className="range-fixed">
        <summary>{between(range.start, range.end)}</summary>
        <FixedRange key={`${range.start} ${range.end}`} range={range} set={set} />
      </details>
    </div>
  );
}

function FixedRange({ range, set }: RangePickerProps) {
  return (
    <form
      aria-label="From and to"
      onSubmit={(event) => {
        event.preventDefault();
        const form = new FormData(event.currentTarget);
        const [from, to] = [form.get("from"), form.get("to")].map((text) => new Date(String(text)).getTime() / 1000);
        if (from !== undefined && to !== undefined && from < to) set(fixedRange(from, to, nowSeconds()));
        event.currentTarget.closest("details")?.removeAttribute("open");
      }}
    >
      <label>
        From <input className="input" type="datetime-local" name="from" required defaultValue={localInput(range.start)} />
      </label>
      <label>
        To <input className="input" type="datetime-local" name="to" required defaultValue={localInput(range.end)} />
      </label>
      <button type="submit" className="button">
        Show
      </button>
    </form>
  );
}

/** A time as inputs of the browser's zone take it: "2026-11-26T14:00". */
function localInput(time: number): string {
  const date = new Date(time * 1000);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
