import { ChartLine, Table } from "lucide-react";
import { useId, useState } from "react";
import { interval } from "./format";
import { Plot, type PlotProps } from "./Plot";

/** A plot with its title, or a table with the same figures. */
export function PlotPanel(props: PlotProps) {
  const { panel } = props;
  const [isTable, setTable] = useState(false);
  const id = useId();
  const Icon = isTable ? ChartLine : Table;
  return (
    <section className="plot-panel" aria-labelledby={id}>
      <div className="row">
        <h2 id={id} className="spread">
          {panel.title}
        </h2>
        <button type="button" className="button small quiet" onClick={() => setTable(!isTable)}>
          <Icon size={14} aria-hidden="true" />
          {isTable ? "Plot" : "Table"}
          <span className="hidden"> of {panel.title}</span>
        </button>
      </div>
      {isTable ? <FigureTable {...props} /> : <Plot {...props} />}
      {panel.note !== undefined && <p className="soft">{panel.note}</p>}
    </section>
  );
}

/** The newest step first; steps without any value are left out. */
function FigureTable({ panel, period, open }: PlotProps) {
  const { title, times, series, format, hasRuns } = panel;
  const rows = times.map((time, index) => ({ time, values: series.map((one) => one.values[index] ?? null) }));
  const shown = rows.filter(({ values }) => values.some((value) => value !== null && value !== 0)).reverse();
  if (shown.length === 0) return <p className="soft">Nothing happened in this time.</p>;
  return (
    <div className="figure-table" tabIndex={0} role="group" aria-label={`Figures of ${title}`}>
      <table>
        <thead>
          <tr>
            <th scope="col">Time</th>
            {series.map(({ name }) => (
              <th key={name} scope="col" className="number">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map(({ time, values }) => (
            <tr key={time}>
              <th scope="row">
                {hasRuns ? (
                  <button type="button" className="plot-open" title="Open the runs of this time" onClick={() => open(time, null)}>
                    {interval(time, period.step)}
                  </button>
                ) : (
                  interval(time, period.step)
                )}
              </th>
              {values.map((value, index) => (
                <td key={series[index]?.name} className="number">
                  {value === null ? "–" : format(value)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
