import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { GreenroomError, type Statistics } from "greenroom-client";
import { useMemo, useState } from "react";
import { client } from "../api";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { AppFilter, ChoiceFilter, FilterForm } from "../pages/FilterForm";
import type { Search } from "../pages/filters";
import { TextFilter } from "../pages/TextFilter";
import "../pages/pages.css";
import { DRAWN_GROUPS, type Panel, type Series, isEmpty, panelsOfAll, panelsOfGroups, panelsOfLoad } from "./figures";
import { between } from "./format";
import { GroupTable } from "./GroupTable";
import type { PlotProps } from "./Plot";
import { PlotPanel } from "./PlotPanel";
import { RangePicker } from "./RangePicker";
import { type Period, type Range, before, fixedRange, inDays, isOpen, parseRange, refreshSeconds } from "./range";
import "./statistics.css";
import { Totals } from "./Totals";
import {
  type Filters,
  GROUPINGS,
  type Grouping,
  PERCENTILES,
  type Percentile,
  type View,
  changed,
  isFiltered,
  isOfCalls,
  parseView,
  runsSearch,
  timeQuery,
  toQuery,
  toSearch,
} from "./view";

/** That the server lists, and of all groups together. */
const MOST_GROUPS = 50;
const MOST_POINTS = 15_000;
const DAY = 86_400;
const NO_FILTERS: Filters = { app: "", user: "", model: "", tool: "" };
const NAMES: Record<Grouping, string> = { app: "App", model: "Model", tool: "Tool", user: "User" };
const nowSeconds = () => Date.now() / 1000;

/** chosen: what the figures were asked for by. groups: null without grouping. */
type Shown = {
  readonly chosen: Pick<View, "filters" | "grouping">;
  readonly all: Statistics;
  readonly groups: Statistics | null;
};

function fetchStatistics(filters: Filters, period: Period, grouping: Grouping | "" = "", limit: number = DRAWN_GROUPS): Promise<Statistics> {
  return client.getStatistics(toQuery(filters, period, grouping, limit));
}

async function fetchShown(chosen: Shown["chosen"], range: Range): Promise<Shown> {
  const { filters, grouping } = chosen;
  const period = grouping === "user" ? inDays(range) : range;
  const [all, groups] = await Promise.all([
    fetchStatistics(filters, period),
    grouping === "" ? null : fetchStatistics(filters, period, grouping),
  ]);
  return { chosen, all, groups };
}

/** What runs did over time: plots, their figures, and the runs behind them. All that is chosen stands in the address. */
export function StatisticsPage() {
  const search = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const view = parseView(search);
  const range = parseRange(search, nowSeconds());
  const { grouping, filters } = view;
  const key = [search.range, search.start, search.end, filters, grouping];
  const refetchInterval = isOpen(range, nowSeconds()) && refreshSeconds(range) * 1000;
  const shown = useQuery({
    queryKey: ["statistics", ...key],
    queryFn: () => fetchShown({ filters, grouping }, parseRange(search, nowSeconds())),
    refetchInterval,
    placeholderData: keepPreviousData,
  });

  const set = (change: Partial<View>) => void navigate({ to: "/statistics", search: toSearch(changed(view, change), range), replace: true });
  const setRange = (wanted: Range) => void navigate({ to: "/statistics", search: toSearch(view, wanted) });
  const zoom = (from: number, to: number) => setRange(fixedRange(from, to, nowSeconds()));
  const openRuns = (time: number, series: Series | null) => {
    const { step } = shown.data?.groups ?? shown.data?.all ?? range;
    void navigate({ to: "/runs", search: runsSearch(filters, time, time + step, series?.runs ?? {}) });
  };
  return (
    <main className="page statistics" aria-busy={shown.isFetching}>
      <h1 className="hidden">Statistics</h1>
      <div className="statistics-bar">
        <RangePicker range={range} set={setRange} />
        <Choices view={view} set={set} />
      </div>
      {shown.isError && <ErrorLine error={shown.error} />}
      {shown.isPending && <p className="soft">Loading…</p>}
      {shown.data !== undefined && <Contents shown={shown.data} view={{ ...view, ...shown.data.chosen }} set={set} zoom={zoom} open={openRuns} />}
      <Load view={view} refetchInterval={refetchInterval} zoom={zoom} />
    </main>
  );
}

function Choices({ view, set }: { view: View; set: (change: Partial<View>) => void }) {
  const { grouping, percentile, filters } = view;
  const filter = (change: Partial<Filters>) => set({ filters: { ...filters, ...change } });
  return (
    <FilterForm clear={isFiltered(filters) ? () => set({ filters: NO_FILTERS }) : null}>
      <ChoiceFilter
        label="Group by"
        all="All together"
        value={grouping}
        values={GROUPINGS}
        nameOf={(one) => `By ${NAMES[one].toLowerCase()}`}
        set={(one) => set({ grouping: one, sort: "" })}
      />
      <select className="select" aria-label="Percentile" value={percentile} onChange={(event) => set({ percentile: event.target.value as Percentile })}>
        {PERCENTILES.map((one) => (
          <option key={one} value={one}>
            Times: {one}
          </option>
        ))}
      </select>
      <AppFilter value={filters.app} set={(app) => filter({ app })} />
      <TextFilter key={`u${filters.user}`} label="User" value={filters.user} set={(user) => filter({ user })} />
      <TextFilter key={`m${filters.model}`} label="Model" value={filters.model} set={(model) => filter({ model })} />
      <TextFilter key={`t${filters.tool}`} label="Tool" value={filters.tool} set={(tool) => filter({ tool })} />
    </FilterForm>
  );
}

/** view: of the figures that are shown, while those of another one are loaded. */
type ContentsProps = Pick<PlotProps, "zoom" | "open"> & {
  readonly shown: Shown;
  readonly view: View;
  readonly set: (change: Partial<View>) => void;
};

function Contents({ shown: { all, groups }, view, set, zoom, open }: ContentsProps) {
  const { grouping, percentile, filters } = view;
  const total = all.groups[0]?.total ?? {};
  const ofCalls = isOfCalls(view);
  const panels = useMemo(
    () => (groups === null || grouping === "" ? panelsOfAll(all, ofCalls) : panelsOfGroups(groups, grouping, percentile)),
    [all, groups, grouping, percentile, ofCalls],
  );
  const earlier = before(all);
  const compared = useQuery({
    queryKey: ["statistics", "before", filters, earlier],
    queryFn: () => fetchStatistics(filters, earlier),
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (isEmpty(total)) return <Nothing filters={filters} clear={() => set({ filters: NO_FILTERS })} />;
  return (
    <>
      <Totals
        total={total}
        before={compared.data?.groups[0]?.total ?? null}
        currency={all.currency ?? "USD"}
        percentile={percentile}
        ofCalls={isOfCalls({ ...view, grouping: "" })}
      />
      <p className="totals-before soft">
        Changes are against {between(earlier.start, earlier.end)}. {(groups ?? all).step === DAY && "All figures are of whole days (UTC)."}
      </p>
      <Panels panels={panels} period={groups ?? all} zoom={zoom} open={open} />
      {groups !== null && grouping !== "" && <Groups groups={groups} grouping={grouping} view={view} set={set} />}
    </>
  );
}

type PanelsProps = Omit<PlotProps, "panel"> & { readonly panels: readonly Panel[] };

function Panels({ panels, ...rest }: PanelsProps) {
  return (
    <div className="panels">
      {panels.map((panel) => (
        <PlotPanel key={panel.title} panel={panel} {...rest} />
      ))}
    </div>
  );
}

type GroupsProps = Pick<ContentsProps, "view" | "set"> & {
  readonly groups: Statistics;
  readonly grouping: Grouping;
};

/** The groups that are drawn, or as many as the server lists. */
function Groups({ groups, grouping, view, set }: GroupsProps) {
  const [isMore, setMore] = useState(false);
  const search = useSearch({ strict: false }) as Search;
  const { start, end, step } = groups;
  const limit = Math.min(MOST_GROUPS, Math.floor((MOST_POINTS * step) / (end - start)));
  const more = useQuery({
    queryKey: ["statistics", "groups", grouping, view.filters, start, end],
    queryFn: () => fetchStatistics(view.filters, groups, grouping, limit),
    enabled: isMore,
    placeholderData: keepPreviousData,
  });
  const shown = isMore && more.data !== undefined ? more.data : groups;
  return (
    <section aria-label={`Figures by ${grouping}`}>
      {more.isError && <ErrorLine error={more.error} />}
      <GroupTable
        statistics={shown}
        grouping={grouping}
        percentile={view.percentile}
        sort={view.sort}
        setSort={(sort) => set({ sort })}
        searchOf={(key) => toSearch({ ...view, grouping: "", sort: "", filters: { ...view.filters, [grouping]: key } }, parseRange(search, nowSeconds()))}
        more={!isMore && (groups.otherGroups ?? 0) > 0 ? () => setMore(true) : null}
      />
    </section>
  );
}

/** Takes the place of plots in which there is nothing. */
function Nothing({ filters, clear }: { filters: Filters; clear: () => void }) {
  return (
    <Empty title="Nothing happened in this time">
      <p>The plots show runs that ended in the chosen time: how many failed, how long they took, what they used and cost.</p>
      {isFiltered(filters) && (
        <p>
          <button type="button" className="button" onClick={clear}>
            Show all apps and users
          </button>
        </p>
      )}
    </Empty>
  );
}

type LoadProps = Pick<PlotProps, "zoom"> & { readonly view: View; readonly refetchInterval: number | false };

/** The caller may not see the load, or the page says already that the server keeps no statistics. */
function isNotShown(error: Error): boolean {
  return error instanceof GreenroomError && (error.status === 403 || error.code === "NotOffered");
}

/** What the servers had to do; for callers that may act for all users. */
function Load({ view, refetchInterval, zoom }: LoadProps) {
  const search = useSearch({ strict: false }) as Search;
  const { app } = view.filters;
  const load = useQuery({
    queryKey: ["statistics load", search.range, search.start, search.end, app],
    queryFn: () => client.getLoad({ ...timeQuery(parseRange(search, nowSeconds())), app_name: app || undefined }),
    refetchInterval,
    placeholderData: keepPreviousData,
  });
  if (load.isError && !isNotShown(load.error)) return <ErrorLine error={load.error} />;
  const panels = load.data === undefined ? [] : panelsOfLoad(load.data);
  if (load.data === undefined || panels.length === 0) return null;
  return (
    <section className="load" aria-labelledby="load">
      <h2 id="load">{app === "" ? "Load of the servers" : `Load of the servers by runs of ${app}`}</h2>
      <Panels panels={panels} period={load.data} zoom={zoom} open={() => undefined} />
    </section>
  );
}
