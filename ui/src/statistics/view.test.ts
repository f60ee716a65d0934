import { expect, test } from "vitest";
import { lastRange } from "./range";
import { type View, changed, parseView, runsSearch, timeQuery, toQuery, toSearch } from "./view";

const NOTHING: View = parseView({});
const FILTERS = NOTHING.filters;
const WEEK = lastRange("week", 1_767_225_700);

test("a view is the same after a way through the address", () => {
  const view: View = { grouping: "app", percentile: "p99", filters: { ...FILTERS, app: "desk", model: "gpt" }, sort: "-cost" };
  expect(parseView(toSearch(view, WEEK))).toEqual(view);
  expect(toSearch(NOTHING, WEEK)).toEqual({ range: "week" });
  expect(parseView({ by: "day", percentile: "p0" })).toEqual(NOTHING);
});

test("figures are asked for by one of user, model and tool", () => {
  const ofUser = changed(NOTHING, { filters: { ...FILTERS, app: "desk", user: "ann" } });
  expect(ofUser.filters).toEqual({ ...FILTERS, app: "desk", user: "ann" });
  expect(changed(ofUser, { grouping: "app" })).toEqual({ ...ofUser, grouping: "app" });
  const byModel = changed(ofUser, { grouping: "model" });
  expect([byModel.grouping, byModel.filters]).toEqual(["model", { ...FILTERS, app: "desk" }]);
  expect(changed(byModel, { filters: { ...byModel.filters, model: "gpt" } }).grouping).toBe("model");
  const ofTool = changed(byModel, { filters: { ...byModel.filters, tool: "weather" } });
  expect([ofTool.grouping, ofTool.filters]).toEqual(["", { ...FILTERS, app: "desk", tool: "weather" }]);
  expect(changed(ofTool, { percentile: "p50" })).toEqual({ ...ofTool, percentile: "p50" });
});

test("figures of users are asked for by whole days", () => {
  const query = (filters: View["filters"], grouping: View["grouping"]) => toQuery(filters, WEEK, grouping, 8);
  expect(query(FILTERS, "")).toEqual({ start: WEEK.start, end: WEEK.end });
  expect(query({ ...FILTERS, app: "desk" }, "model")).toEqual({ app_name: "desk", group_by: "model", limit: 8, start: WEEK.start, end: WEEK.end });
  for (const { start = 0, end = 0, step } of [query(FILTERS, "user"), query({ ...FILTERS, user: "ann" }, "")]) {
    expect([start % 86_400, end % 86_400, step]).toEqual([0, 0, 86_400]);
    expect(start).toBeLessThanOrEqual(WEEK.start);
    expect(end).toBeGreaterThanOrEqual(WEEK.end);
  }
});

test("the step is asked for where the server would choose another one", () => {
  const hour = { start: 7_200, end: 10_800, step: 3_600 };
  expect(timeQuery(hour)).toEqual({ start: 7_200, end: 10_800, step: 3_600 });
  expect(timeQuery({ ...hour, step: 60 })).toEqual({ start: 7_200, end: 10_800 });
});

test("the page of runs gets the filters that it has", () => {
  expect(runsSearch({ app: "desk", user: "ann", model: "gpt", tool: "" }, 600, 660, { status: "failed" })).toEqual({
    app: "desk",
    user: "ann",
    status: "failed",
    from: "600",
    to: "660",
  });
});
