// Uses agents with A2A's own JavaScript client, and prints what it got.
// Arguments: the URL of an agent that answers, the URL of one that never does, and the URL of a webhook.
import { randomUUID } from "node:crypto";
import { ClientFactory } from "@a2a-js/sdk/client";

const [answers, waits, webhook] = process.argv.slice(2);
const connect = (url) => new ClientFactory().createFromUrl(url, ".well-known/agent-card.json");
const request = (text, configuration) => ({
  tenant: "",
  message: {
    messageId: randomUUID(),
    contextId: "",
    taskId: "",
    role: 1, // ROLE_USER
    parts: [{ content: { $case: "text", value: text }, metadata: undefined, filename: "", mediaType: "" }],
    metadata: undefined,
    extensions: [],
    referenceTaskIds: [],
  },
  configuration: configuration && { acceptedOutputModes: [], returnImmediately: false, ...configuration },
  metadata: undefined,
});
const textOf = (artifact) => artifact.parts.map((part) => part.content.value).join("");

const client = await connect(`${answers}/`);
const sent = await client.sendMessage(request("one two"));
const read = await client.getTask({ tenant: "", id: sent.id });
const streamed = [];
for await (const { payload } of client.sendMessageStream(request("three four"))) {
  const { artifact, lastChunk, status } = payload.value;
  streamed.push({ kind: payload.$case, state: status?.state, text: artifact && textOf(artifact), isLast: lastChunk });
}

const waiting = await connect(`${waits}/`);
const begun = await waiting.sendMessage(request("Wait", { returnImmediately: true }));
const config = { tenant: "", taskId: begun.id, id: "p", url: webhook, token: "t-1", authentication: undefined };
const made = await waiting.createTaskPushNotificationConfig(config);
const named = { tenant: "", taskId: begun.id, id: "p" };
const got = await waiting.getTaskPushNotificationConfig(named);
await waiting.createTaskPushNotificationConfig({ ...config, id: "q", token: "t-2" });
await waiting.deleteTaskPushNotificationConfig({ ...named, id: "q" });
const listed = await waiting.listTaskPushNotificationConfig({ tenant: "", taskId: begun.id, pageSize: 0, pageToken: "" });
const cancelled = await waiting.cancelTask({ tenant: "", id: begun.id, metadata: undefined });

console.log(
  JSON.stringify({
    texts: [sent, read].map((task) => task.artifacts.map(textOf)),
    states: [sent, read, cancelled].map((task) => task.status.state),
    streamed,
    configs: [made, got, ...listed.configs].map(({ taskId, id, url, token }) => [taskId === begun.id, id, url, token]),
  }),
);
