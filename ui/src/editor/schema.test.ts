import { expect, test } from "vitest";
import { ITEM, type Schema, complaintOf, pathOf, suggest } from "./schema";

const SCHEMA: Schema = {
  anyOf: [{ $ref: "#/$defs/Llm" }, { $ref: "#/$defs/Loop" }],
  $defs: {
    Llm: {
      properties: {
        agent_class: { enum: ["LlmAgent"] },
        name: { type: "string", description: "The name." },
        subAgents: { type: "array" },
        sub_agents: { type: "array", items: { $ref: "#/$defs/Ref" } },
        tools: { anyOf: [{ type: "array", items: { $ref: "#/$defs/Tool" } }, { type: "null" }] },
        include_contents: { anyOf: [{ enum: ["default", "none"] }, { type: "null" }] },
        disallow: { type: "boolean" },
      },
    },
    Loop: { properties: { agent_class: { const: "LoopAgent" }, name: {}, max_iterations: { type: "integer" } } },
    Ref: { oneOf: [{ required: ["config_path"] }, { required: ["code"] }] as never, properties: { config_path: {}, code: {} } },
    Tool: { properties: { name: {}, args: { additionalProperties: { $ref: "#/$defs/Tool" } } } },
  },
};

function labels(text: string): readonly string[] | undefined {
  return suggest(SCHEMA, text)?.options.map((one) => one.label);
}

test.each([
  ["", []],
  ["na", []],
  ["a:\n  b", ["a"]],
  ["a:\n  b:\n    c: 1\n  d", ["a"]],
  ["a:\n  - ", ["a", ITEM]],
  ["a:\n- ", ["a", ITEM]],
  ["a:\n  - name: x\n    ar", ["a", ITEM]],
  ["a:\n- name: x\n  args:\n    k", ["a", ITEM, "args"]],
  ["a:\n  - b: 1\n  - c: 2\nd", []],
  ["x: 1\n# a: comment\n\na:\n  - b:\n      - c", ["a", ITEM, "b", ITEM]],
])("the path of %j", (text, path) => {
  expect(pathOf(text.split("\n"))).toEqual(path);
});

test("keys of the kind of agent, in one spelling", () => {
  expect(labels("n")).toEqual(["agent_class", "name", "sub_agents", "tools", "include_contents", "disallow"]);
  expect(labels("agent_class: LoopAgent\nm")).toEqual(["agent_class", "name", "max_iterations"]);
  expect(suggest(SCHEMA, "n")?.options[1]).toEqual({ label: "name", detail: "string", info: "The name." });
});

test("keys of items and of maps of maps", () => {
  expect(labels("sub_agents:\n  - ")).toEqual(["config_path", "code"]);
  expect(labels("tools:\n- name: x\n  ")).toEqual(["name", "args"]);
  expect(labels("tools:\n  - args:\n      any:\n        ")).toEqual(["name", "args"]);
  expect(labels("name:\n  ")).toBeUndefined();
});

test("values, and where the word begins", () => {
  expect(suggest(SCHEMA, "name: x\ninclude_contents: no")).toMatchObject({ from: 26, isKey: false });
  expect(labels("include_contents: ")).toEqual(["default", "none"]);
  expect(labels("disallow: t")).toEqual(["true", "false"]);
  expect(labels("name: ")).toBeUndefined();
  expect(labels("name: some words")).toBeUndefined();
});

test("complaints with their lines", () => {
  expect(complaintOf("shop/root_agent.yaml:5: tools[0]: no such tool", "root_agent.yaml")).toEqual({ line: 5, text: "tools[0]: no such tool" });
  expect(complaintOf("shop/root_agent.yaml: is empty", "root_agent.yaml")).toEqual({ line: 1, text: "is empty" });
  expect(complaintOf("shop/helper.yaml:2: x", "root_agent.yaml")).toBeNull();
  expect(complaintOf("The app's code fails", "root_agent.yaml")).toBeNull();
});
