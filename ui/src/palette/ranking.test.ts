import { expect, test } from "vitest";
import { type Choice, ranked } from "./ranking";

function choice(kind: Choice["kind"], name: string, more: Partial<Choice> = {}): Choice {
  return { id: `${kind} ${name}`, kind, name, act: () => undefined, ...more };
}

const CHOICES = [
  choice("Page", "Runs"),
  choice("Action", "Stop the run"),
  choice("App", "prune"),
  choice("Session", "About Oslo", { isFound: true }),
  choice("Run", "weather / s-1", { hint: "failed · e-77" }),
];

test("names that begin with the query come first, then those that contain it", () => {
  const names = ranked("run", CHOICES).map((one) => one.name);
  expect(names).toEqual(["Runs", "Stop the run", "prune", "About Oslo", "weather / s-1"]);
});

test("every word must be somewhere, but in what the server found", () => {
  expect(ranked("failed weather", CHOICES).map((one) => one.name)).toEqual(["About Oslo", "weather / s-1"]);
  expect(ranked("nothing", CHOICES.slice(0, 3))).toEqual([]);
});

test("without a query all pages and actions are offered, and a few of the rest", () => {
  const runs = Array.from({ length: 30 }, (_, at) => choice("Run", `r-${at}`));
  expect(ranked("  ", [...CHOICES, ...runs])).toHaveLength(4 + 8);
});
