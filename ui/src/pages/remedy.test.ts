import { expect, test } from "vitest";
import { remedyOf } from "./remedy";

test.each([
  ["litellm is not installed; get it with: pip install 'greenroom[litellm]'", "pip install 'greenroom[litellm]'"],
  ["ModuleNotFoundError: No module named 'a_package.part' (agent.py, line 1)", "pip install a-package"],
  ["The model is not on this machine; get it with: greenroom models pull smollm2-135m", "greenroom models pull smollm2-135m"],
  ["ANTHROPIC_API_KEY is not set", "export ANTHROPIC_API_KEY="],
])("%s", (error, command) => {
  expect(remedyOf(error)?.command).toBe(command);
});

test("an error that names nothing missing has no remedy", () => {
  expect(remedyOf("TypeError: unexpected keyword argument 'modle'")).toBeNull();
});
