import type { Schedule } from "greenroom-client";
import { expect, test } from "vitest";
import { countOf, draftOf, emptyDraft, inZone, scheduleOf, timingOf } from "./schedules";

const FILE = { inlineData: { data: "aGk=", mimeType: "text/plain" } };

test("a schedule that is edited keeps what the form doesn't show", () => {
  const before: Schedule = {
    id: "s",
    userId: "ada",
    cron: "30 9 * * MON-FRI",
    timeZone: "Europe/Berlin",
    startAt: 1_800_000_000,
    jitterSeconds: 30,
    missed: "all",
    overlap: "cancel",
    sessionId: "daily",
    request: { newMessage: { role: "user", parts: [FILE, { text: "look" }] }, stateDelta: { city: "Oslo" } },
  };
  expect(scheduleOf(draftOf(before), before)).toEqual(before);
  const changed = scheduleOf({ ...draftOf(before), kind: "interval", count: "2", unit: "hours", message: "" }, before);
  expect(changed).toMatchObject({ everySeconds: 7_200, request: { newMessage: { parts: [FILE] } } });
  expect(changed.cron).toBeUndefined();
});

test("a new schedule has only what was entered", () => {
  const draft = { ...emptyDraft("ada"), kind: "once", at: "2030-01-02T03:04", message: "hello" } as const;
  expect(scheduleOf(draft, undefined)).toEqual({
    userId: "ada",
    at: new Date("2030-01-02T03:04").getTime() / 1000,
    missed: "once",
    request: { newMessage: { role: "user", parts: [{ text: "hello" }] } },
  });
});

test("intervals are named in the greatest whole unit", () => {
  expect([90, 120, 7_200, 172_800, 0.5].map((seconds) => countOf(seconds).join(" "))).toEqual(["90 seconds", "2 minutes", "2 hours", "2 days", "0.5 seconds"]);
  expect(timingOf({ userId: "ada", everySeconds: 3_600 })).toBe("every hour");
});

test("a time is shown in the zone of its schedule, through changes of the clock", () => {
  const [winter, summer] = [Date.UTC(2030, 0, 7, 8, 30) / 1000, Date.UTC(2030, 6, 8, 7, 30) / 1000];
  for (const at of [winter, summer]) expect(inZone(at, "Europe/Berlin")).toMatch(/0?9:30/);
});
