// Asks an agent with the Vercel AI SDK and its OpenAI provider, and prints what it made of the answer.
// Arguments: the base URL, and JSON with `api` (`chat` or `responses`), `model`, `prompt`, and `streams`.
// The function `where_am_i` is executed here by the SDK, which sends its result.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

const [baseURL, asked] = process.argv.slice(2);
const { api, model, prompt, streams } = JSON.parse(asked);
const errors = [];
const request = {
  model: createOpenAI({ baseURL, apiKey: "none" })[api](model),
  prompt,
  maxRetries: 0,
  stopWhen: stepCountIs(3),
  tools: {
    where_am_i: tool({
      description: "Where the user is.",
      inputSchema: jsonSchema({ type: "object", properties: { precise: { type: "boolean" } } }),
      execute: async ({ precise }) => ({ city: precise ? "Oslo" : "Norway" }),
    }),
  },
  onError: ({ error }) => void errors.push(String(error?.message ?? error)),
};
const made = { pieces: [], errors };
try {
  const result = streams ? streamText(request) : await generateText(request);
  if (streams) for await (const piece of result.textStream) made.pieces.push(piece);
  const steps = await result.steps;
  made.texts = steps.map((step) => step.text);
  made.calls = steps.flatMap((step) => step.toolCalls.map(({ toolName, input }) => [toolName, input]));
  made.finishReason = await result.finishReason;
  made.usage = await result.totalUsage;
} catch (raised) {
  errors.push(String(raised?.message ?? raised));
}
console.log(JSON.stringify(made));
