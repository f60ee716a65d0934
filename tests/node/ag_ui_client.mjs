// Runs an agent with AG-UI's own client, which verifies the order of the events, and prints what it made of them.
// Arguments: the endpoint's URL, and JSON of the thread's id, its messages, its state and the parameters of a run.
import { HttpAgent } from "@ag-ui/client";

const [url, asked] = process.argv.slice(2);
const { threadId, messages, state, headers, ...parameters } = JSON.parse(asked);
const agent = new HttpAgent({ url, headers, threadId, initialMessages: messages, initialState: state });
const events = [];
let error = null;
try {
  await agent.runAgent(parameters, { onEvent: ({ event }) => void events.push(event) });
} catch (raised) {
  error = String(raised?.message ?? raised);
}
console.log(JSON.stringify({ messages: agent.messages, state: agent.state, events, error }));
