// Against the server that GREENROOM_URL names; tests/client/test_typescript.py starts it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, type Event, GreenroomError, LiveConnection, type SessionPlace, type WaitingRun } from "../src/index.ts";
import { frames } from "../src/sse.ts";

const URL = process.env["GREENROOM_URL"] ?? "";
const client = new Client(URL);

async function sessionOf(app: string): Promise<SessionPlace> {
  const { id } = await client.createSession(app, "ann/e");
  return { app, user: "ann/e", session: id };
}

const text = (event: Event): string => (event.content?.parts ?? []).map((part) => part.text ?? "").join("");
const isError = (code: string, status: number) => (error: unknown) =>
  error instanceof GreenroomError && error.code === code && error.status === status;

/** A fetch whose streams lose their connection after so many bytes, the first time. */
function cutting(bytes: number, cuts = { left: 1 }): typeof fetch {
  return async (input, init) => {
    const reply = await fetch(input, init);
    if (!reply.headers.get("content-type")?.startsWith("text/event-stream") || cuts.left-- <= 0 || !reply.body) return reply;
    let left = bytes;
    const cut = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        controller.enqueue(chunk.subarray(0, left));
        left -= chunk.length;
        if (left < 0) controller.error(new TypeError("connection lost"));
      },
    });
    return new Response(reply.body.pipeThrough(cut), reply);
  };
}

test("apps, sessions and their changes", async () => {
  assert.ok((await client.listApps()).some((app) => app.name === "echo"));
  assert.equal((await client.getAppInfo("echo")).rootAgentName, "echo");
  const place = await sessionOf("echo");
  await client.patchSession(place, { stateDelta: { city: "Oslo" } });
  assert.equal((await client.getSession(place)).state["city"], "Oslo");
  const page = await client.listSessions("echo", "ann/e", { state: ["city=Oslo"], limit: 1 });
  assert.deepEqual(page.sessions.map((one) => one.id), [place.session]);
  const fork = await client.forkSession(place);
  assert.equal(fork.state["city"], "Oslo");
  await client.deleteSession(place);
  await assert.rejects(client.getSession(place), isError("SessionNotFound", 404));
});

test("a message reaches the active run", async () => {
  const place = await sessionOf("worker");
  const working = await client.startRun(place, { message: "go" });
  const steering = await client.startRun(place, { message: "be brief", multitaskStrategy: "steer" });
  assert.equal(steering.steeredInto, working.id);
  const events: Event[] = [];
  const stream = await client.follow(steering.id);
  for await (const event of stream) events.push(event);
  assert.deepEqual(events.map(text), ["be brief", "told be brief"]);
  assert.equal(stream.run.id, working.id);
  assert.equal((await client.getRun(steering.id)).readAtSeq, 4);
});

test("a run is read to its end, and started once by one key", async () => {
  const place = await sessionOf("echo");
  const stream = await client.run(place, { message: "hi" });
  const events: Event[] = [];
  for await (const event of stream) events.push(event);
  assert.equal(text(events.at(-1)!), "You said hi");
  assert.ok(events.every((event) => event.author === "echo"));
  assert.equal(stream.lastSeq, 2);
  assert.equal(stream.run.status, "succeeded");
  const first = await client.startRun(place, { message: "again" }, "key");
  assert.equal((await client.startRun(place, { message: "again" }, "key")).id, first.id);
  await (await client.follow(first.id)).wait();
  assert.equal((await client.listRuns({ session_id: place.session, status: ["succeeded"] })).runs.length, 2);
  const edited = await client.editEvent(place, (await client.listEvents(place)).events[0]!.id, { message: "bye" });
  assert.notEqual(edited.sessionId, place.session);
});

test("a message is read as it is written", async () => {
  const seen: Event[] = [];
  for await (const event of await client.run(await sessionOf("slow"), { message: "hi", streaming: true })) seen.push(event);
  assert.ok(seen.filter((event) => event.partial).length > 1);
  assert.equal(seen.filter((event) => event.partial).map(text).join(""), text(seen.at(-1)!));
});

test("a stream cut at any byte misses and repeats nothing", async () => {
  const place = await sessionOf("echo");
  const run = await (await client.run(place, { message: "hi" })).wait();
  const path = `${URL}/runs/${run.id}/events?after=0`;
  const whole = await (await fetch(path, { headers: { accept: "text/event-stream" } })).arrayBuffer();
  const wanted = (await client.listEvents(place)).events.map((event) => event.id);
  assert.equal(wanted.length, 2);
  async function readCutAfter(bytes: number): Promise<void> {
    const stream = await new Client(URL, { fetch: cutting(bytes) }).follow(run.id, { after: 0 });
    const seen: string[] = [];
    for await (const event of stream) seen.push(event.id);
    assert.deepEqual(seen, wanted, `cut after ${bytes} bytes`);
    assert.equal(stream.run.status, "succeeded");
  }
  for (let from = 0; from <= whole.byteLength; from += 200)
    await Promise.all(Array.from({ length: 40 }, (_, index) => readCutAfter(from + 5 * index)));
});

test("a session's stream holds the events and the ends of all its runs", async () => {
  const place = await sessionOf("echo");
  const stop = new AbortController();
  const seen: string[] = [];
  const stream = new Client(URL, { fetch: cutting(300) }).followSession(place, { signal: stop.signal });
  await client.run(place, { message: "one" });
  let ends = 0;
  for await (const item of stream) {
    if (item.kind === "event" && item.seq !== null) seen.push(text(item.event));
    if (item.kind === "end" && ++ends === 1) await client.startRun(place, { message: "two" });
    if (ends === 2) break;
  }
  assert.deepEqual(seen, ["one", "You said one", "two", "You said two"]);
});

test("errors are those of the server", async () => {
  const place = await sessionOf("bad");
  const stream = await client.run(place, { message: "hi" });
  await assert.rejects(stream.wait(), isError("ModelError", 500));
  assert.equal(stream.run.status, "failed");
  await assert.rejects(client.getRun("none"), isError("RunNotFound", 404));
  const nobody = new Client("http://127.0.0.1:9", { retryMs: 0 });
  await assert.rejects(nobody.listApps(), isError("Unavailable", 0));
  const stop = new AbortController();
  stop.abort();
  await assert.rejects(async () => {
    for await (const _ of client.followSession(place, { signal: stop.signal })) void _;
  }, { name: "AbortError" });
});

test("a refused request is sent again, what may be processed twice is not", async () => {
  for (const [status, sent] of [[503, 2], [502, 1]] as const) {
    let count = 0;
    const failing: typeof fetch = async (input, init) =>
      ++count === 1 ? new Response("a proxy's page", { status }) : fetch(input, init);
    const creating = new Client(URL, { fetch: failing }).createSession("echo", "ann/e");
    if (sent === 1) await assert.rejects(creating, isError("Unavailable", 502));
    else await creating;
    assert.equal(count, sent);
  }
});

for (const confirmed of [true, false])
  test(`a call is ${confirmed ? "approved" : "refused"}, once`, async () => {
    const place = await sessionOf("bank");
    const asking = await client.run(place, { message: "7" });
    assert.equal((await asking.wait()).status, "waiting");
    let waiting: WaitingRun | undefined;
    while (waiting === undefined) [waiting] = (await client.listWaitingRuns(place.app, { limit: 1 })).waitingRuns ?? [];
    assert.deepEqual([waiting.run.id, waiting.difference], [asking.run.id, undefined]);
    const [request] = asking.requests;
    assert.ok(request);
    const answered = await (confirmed ? client.approve(asking.run, request) : client.refuse(asking.run, request));
    const events: Event[] = [];
    for await (const event of answered) events.push(event);
    assert.equal(answered.run.id, asking.run.id);
    assert.equal(answered.run.status, "succeeded");
    assert.deepEqual(answered.requests, []);
    const [result] = events.flatMap((event) => event.content?.parts ?? []).filter((part) => part.functionResponse);
    assert.equal("error" in (result?.functionResponse?.response ?? {}), !confirmed);
    await assert.rejects(client.approve(asking.run, request), isError("ApprovalRefused", 409));
  });

test("artifacts, traces, usage and graphs", async () => {
  const place = await sessionOf("echo");
  const data = new TextEncoder().encode("hello");
  assert.equal((await client.saveArtifact(place, "a b.txt", data, "text/plain")).version, 0);
  assert.equal(await (await client.loadArtifact(place, "a b.txt")).text(), "hello");
  assert.deepEqual(await client.listArtifacts(place), ["a b.txt"]);
  await client.deleteArtifact(place, "a b.txt");
  const stream = await client.run(place, { message: "hi" });
  let last = "";
  for await (const event of stream) last = event.id;
  assert.match(JSON.stringify(await client.getEventTrace("echo", last)), /You said hi/);
  assert.ok((await client.getSessionTrace("echo", place.session)).length > 0);
  assert.ok(Array.isArray((await client.listUsage("echo", { group_by: ["model"] })).usage));
  assert.match((await client.getGraph("echo")).dotSrc ?? "", /digraph/);
});

test("webhooks of a run, with their deliveries", async () => {
  const url = "https://receiver.invalid/";
  const stream = await client.run(await sessionOf("echo"), { message: "hi", webhooks: [{ url, id: "given", states: ["failed"] }] });
  for await (const _ of stream);
  const added = await client.addWebhook(stream.run.id, { url, states: ["failed"] });
  assert.deepEqual((await client.listWebhooks(stream.run.id)).map(({ id }) => id), ["given", added.id]);
  const tested = await client.testWebhook(stream.run.id, added.id);
  assert.equal(tested.type, "webhook.test");
  assert.equal(tested.status, "failed");
  const again = await client.redeliver(stream.run.id, added.id, tested.id);
  assert.equal(again.attempts?.length, 2);
  assert.deepEqual(await client.listDeliveries(stream.run.id, added.id, { limit: 5 }), [again]);
  await client.deleteWebhook(stream.run.id, added.id);
  await assert.rejects(client.testWebhook(stream.run.id, added.id), isError("NotFound", 404));
});

test("webhooks of an app", async () => {
  const webhook = { url: "https://receiver.invalid/", id: "pager", states: ["failed" as const] };
  const stored = await client.putAppWebhook("echo", webhook);
  assert.equal(stored.url, webhook.url);
  assert.deepEqual(await client.listAppWebhooks("echo"), [stored]);
  assert.deepEqual(await client.getAppWebhook("echo", "pager"), stored);
  await client.deleteAppWebhook("echo", "pager");
  await assert.rejects(client.getAppWebhook("echo", "pager"), isError("NotFound", 404));
});

test("a failed run is retried, and a session is rewound", async () => {
  const ended = async (runId: string) => {
    const stream = await client.follow(runId);
    for await (const event of stream) assert.ok(event.id);
    return stream.run;
  };
  const place = await sessionOf("mended");
  const failed = await client.startRun(place, { message: "one" });
  await assert.rejects(ended(failed.id), isError("ValueError", 500));
  const retried = await client.retryRun(failed.id);
  assert.equal(retried.id, failed.id);
  assert.deepEqual([(await ended(retried.id)).status, (await client.getRun(failed.id)).retries], ["succeeded", 1]);
  await assert.rejects(client.retryRun(failed.id), isError("NotRetryable", 409));

  const second = await client.startRun(place, { message: "two" });
  await assert.rejects(ended(second.id), isError("ValueError", 500));
  assert.equal((await client.listRuns({ app_name: "mended", error_code: "ValueError" })).runs?.[0]?.id, second.id);
  const { started, refused } = await client.retryRuns({ appName: "mended", errorCode: "ValueError" });
  assert.deepEqual([started?.map((run) => run.id), refused], [[second.id], []]);
  assert.equal((await ended(second.id)).status, "succeeded");

  const rewind = await client.rewindSession(place, second.id);
  assert.equal(rewind.actions.rewindBeforeInvocationId, second.id);
});

test("feedback", async () => {
  const place = await sessionOf("echo");
  const run = await (await client.run(place, { message: "hi" })).wait();
  const events = (await client.getSession(place)).events;
  const answer = events[events.length - 1]?.id ?? "";
  const given = await client.giveFeedback(place, answer, { name: "helpful", score: false, comment: "too short" });
  assert.deepEqual([given.score, given.source, given.runId], [false, "user", run.id]);
  assert.deepEqual((await client.listSessionFeedback(place)).feedback, [given]);
  assert.deepEqual((await client.listFeedback("echo", { user_id: place.user, max_score: 0 })).feedback, [given]);
  assert.deepEqual((await client.listFeedback("echo", { user_id: place.user, min_score: 1 })).feedback, []);
  const ofRuns = { app_name: "echo", user_id: place.user, feedback: "helpful" };
  assert.deepEqual((await client.listRuns({ ...ofRuns, max_score: 0 })).runs?.map((one) => one.id), [run.id]);
  assert.deepEqual((await client.listRuns({ ...ofRuns, min_score: 1 })).runs, []);
  const made = await client.makeCase(place, answer, { evalSetId: "complaints" });
  assert.deepEqual(made.added?.map((one) => one.eventId), [answer]);
  const { added, skipped } = await client.addFeedbackCases("echo", "complaints", { maxScore: 0, userId: place.user });
  assert.deepEqual([added, skipped?.map((one) => one.eventId)], [[], [answer]]);
  assert.deepEqual((await client.listEvalSetVersions("echo", "complaints")).map((one) => one.size), [1]);
  await client.deleteFeedback(place, answer, { name: "helpful" });
  assert.deepEqual((await client.listSessionFeedback(place)).feedback, []);
});

test("schedules", async () => {
  assert.equal((await client.nextTimes("echo", { userId: "ann", cron: "0 9 * * *" }, { limit: 2 })).length, 2);
  const request = { newMessage: { parts: [{ text: "hi" }] } };
  const created = await client.createSchedule("echo", { userId: "ann/e", cron: "0 9 * * *", timeZone: "Europe/Berlin", request });
  const id = created.id ?? "";
  assert.deepEqual(await client.getSchedule("echo", id), created);
  assert.equal((await client.pauseSchedule("echo", id)).isPaused, true);
  assert.equal((await client.resumeSchedule("echo", id)).nextAt, created.nextAt);
  const changed = await client.replaceSchedule("echo", id, { userId: "ann/e", everySeconds: 60, request });
  assert.equal(changed.createdAt, created.createdAt);
  const run = await client.runSchedule("echo", id);
  assert.deepEqual((await client.listScheduleRuns("echo", id)).map((entry) => entry.runId), [run.id]);
  const listed = await client.listSchedules("echo", { user_id: "ann/e", limit: 1 });
  assert.deepEqual(listed.schedules.map((one) => one.id), [id]);
  await client.deleteSchedule("echo", id);
  await assert.rejects(client.getSchedule("echo", id), isError("ScheduleNotFound", 404));
});

test("frames in any line ends, cut anywhere", async () => {
  const source = new TextEncoder().encode("id: 1\r\ndata: a\r\ndata:b\u00e9\r\n\r\n: c\n\nevent: end\ndata: x\n\ndata: unfinished");
  for (let cut = 0; cut <= source.length; cut++) {
    const body = new Blob([source]).stream().pipeThrough(
      new TransformStream<Uint8Array, Uint8Array>({
        transform(chunk, controller) {
          controller.enqueue(chunk.subarray(0, cut));
          controller.enqueue(chunk.subarray(cut));
        },
      }),
    );
    const found = [];
    for await (const frame of frames(body)) if (frame.data !== "") found.push(frame);
    assert.deepEqual(found, [
      { event: "", data: "a\nb\u00e9", id: "1" },
      { event: "end", data: "x", id: null },
    ]);
  }
});

test("a live conversation, and what ends it", async () => {
  const place = await sessionOf("phone");
  const heard: (readonly [string, number | null])[] = [];
  await new Promise<void>((resolve, reject) => {
    const live = new LiveConnection(URL, place, {
      onOpen: () => live.sendText("hello"),
      onEvent: (event, seq) => {
        if (event.outputTranscription?.finished) heard.push([event.outputTranscription.text ?? "", seq]);
        if (event.turnComplete) live.close();
      },
      onEnd: (error) => (error === null ? resolve() : reject(error)),
    });
  });
  assert.equal(heard[0]?.[0], "You said hello");
  assert.ok((heard[0]?.[1] ?? 0) > 0);
  const refused = await new Promise<GreenroomError | null>((onEnd) => {
    new LiveConnection(URL, { ...place, session: "none" }, { onEvent: () => undefined, onEnd });
  });
  assert.match(refused?.message ?? "", /Session not found/);
});

test("versions of an app that is in code", async () => {
  await assert.rejects(client.publishVersion("echo", "first"), isError("NotOffered", 501));
  const { versions, shares } = await client.listVersions("echo");
  assert.deepEqual([versions, shares], [[], {}]);
  assert.deepEqual(await client.setTraffic("echo", { source: 100 }), { shares: { source: 100 } });
  assert.deepEqual(await client.setTraffic("echo", {}), { shares: {} });
  await assert.rejects(client.setTraffic("echo", { v1: 100 }), isError("NotFound", 404));
  await assert.rejects(client.getVersion("echo", "v1"), isError("NotFound", 404));
  await assert.rejects(client.compareVersions("echo", "v1", "source"), isError("NotFound", 404));
  await assert.rejects(client.deleteVersion("echo", "v1"), isError("NotFound", 404));
  await (await client.run(await sessionOf("echo"), { message: "hi" })).wait();
  const scores = await client.getVersionScores("echo", { baseline: "source" });
  assert.deepEqual(scores.versions.map((one) => one.name), ["source"]);
});
