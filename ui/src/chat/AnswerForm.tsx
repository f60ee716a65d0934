import type { JsonObject, JsonValue } from "greenroom-client";
import { useState } from "react";
import { ErrorLine } from "../components/ErrorLine";
import { objectOf, textOf } from "../timeline/requests";

type Property = { readonly name: string; readonly type: string; readonly choices: readonly JsonValue[]; readonly isRequired: boolean; readonly hint: string };

/** A form made from a JSON Schema, or a box for JSON. The answer is a map; one of another type is sent as its `result`. */
export default function AnswerForm(props: { label: string; schema: JsonValue; send: (value: JsonObject) => Promise<void> }) {
  const { label, schema, send } = props;
  const whole = objectOf(schema);
  const properties = propertiesOf(whole);
  const type = textOf(whole.type).toLowerCase();
  const isMap = properties.length > 0;
  const isJson = !isMap && !["string", "integer", "number", "boolean"].includes(type);
  const fields = isMap ? properties : [{ name: "result", type: isJson ? "json" : type, choices: listOf(whole.enum), isRequired: true, hint: "" }];
  const [values, setValues] = useState<Readonly<Record<string, string>>>(() =>
    Object.fromEntries(fields.map((field) => [field.name, field.type === "boolean" ? "false" : (field.choices[0] ?? "").toString()])),
  );
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);

  async function submit() {
    setBusy(true);
    setError(null);
    try {
      const entries = fields
        .filter((field) => field.isRequired || values[field.name] !== "")
        .map((field) => [field.name, parse(values[field.name] ?? "", field)] as const);
      const first = entries[0]?.[1] ?? null;
      const isPlainMap = isJson && typeof first === "object" && first !== null && !Array.isArray(first);
      await send(isPlainMap ? objectOf(first) : Object.fromEntries(entries));
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  }

  return (
    <form
      className="answer"
      aria-label={label}
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      {fields.map((field) => (
        <label key={field.name} className="answer-field">
          <span className={isMap ? "" : "hidden"}>
            {field.name}
            {field.isRequired ? "" : " (optional)"}
          </span>
          <Input field={field} value={values[field.name] ?? ""} set={(value) => setValues({ ...values, [field.name]: value })} label={label} />
          {field.hint !== "" && <span className="soft">{field.hint}</span>}
        </label>
      ))}
      {error !== null && <ErrorLine error={error} />}
      <button type="submit" className="button primary" disabled={isBusy}>
        Answer
      </button>
    </form>
  );
}

function Input({ field, value, set, label }: { field: Property; value: string; set: (value: string) => void; label: string }) {
  const name = field.name === "result" ? label : field.name;
  if (field.choices.length > 0) {
    return (
      <select className="select" aria-label={name} value={value} onChange={(event) => set(event.target.value)}>
        {field.choices.map((choice) => (
          <option key={String(choice)}>{String(choice)}</option>
        ))}
      </select>
    );
  }
  if (field.type === "boolean") {
    return <input type="checkbox" aria-label={name} checked={value === "true"} onChange={(event) => set(String(event.target.checked))} />;
  }
  if (field.type === "integer" || field.type === "number") {
    const step = field.type === "integer" ? 1 : "any";
    return <input type="number" step={step} className="input" aria-label={name} required={field.isRequired} value={value} onChange={(event) => set(event.target.value)} />;
  }
  const isJson = field.type !== "string";
  return (
    <textarea
      className={`textarea${isJson ? " mono" : ""}`}
      aria-label={name}
      rows={isJson ? 3 : 1}
      placeholder={isJson ? '{"result": "…"}' : ""}
      required={field.isRequired}
      value={value}
      onChange={(event) => set(event.target.value)}
    />
  );
}

function propertiesOf(schema: JsonObject): readonly Property[] {
  const required = listOf(schema.required);
  return Object.entries(objectOf(schema.properties)).map(([name, given]) => {
    const property = objectOf(given);
    return {
      name,
      type: textOf(property.type).toLowerCase() || "json",
      choices: listOf(property.enum),
      isRequired: required.includes(name),
      hint: textOf(property.description),
    };
  });
}

function listOf(value: JsonValue | undefined): readonly JsonValue[] {
  return Array.isArray(value) ? (value as readonly JsonValue[]) : [];
}

function parse(text: string, field: Property): JsonValue {
  if (field.choices.length > 0) return field.choices.find((choice) => String(choice) === text) ?? text;
  if (field.type === "string") return text;
  if (field.type === "boolean") return text === "true";
  if (field.type === "integer" || field.type === "number") return Number(text);
  try {
    return JSON.parse(text) as JsonValue;
  } catch {
    if (field.type === "json" && !/^\s*[[{"]/.test(text)) return text;
    throw new Error(`${field.name} is not valid JSON`);
  }
}
