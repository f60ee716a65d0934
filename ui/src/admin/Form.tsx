import { type FormEvent, type ReactNode, useId, useState } from "react";
import { ErrorLine } from "../components/ErrorLine";

type FormProps = {
  readonly label: string;
  readonly action: string;
  /** The form stays open, with the error, if it throws. */
  readonly submit: () => Promise<void>;
  readonly cancel: () => void;
  readonly children: ReactNode;
};

/** A form that shows the error of its action. */
export function AdminForm({ label, action, submit, cancel, children }: FormProps) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);

  async function send(event: FormEvent) {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await submit();
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  }

  return (
    <form className="admin-form" aria-label={label} onSubmit={(event) => void send(event)}>
      <div className="admin-fields">{children}</div>
      {error !== null && <ErrorLine error={error} />}
      <div className="row">
        <button type="submit" className="button primary" disabled={isBusy}>
          {action}
        </button>
        <button type="button" className="button quiet" onClick={cancel}>
          Cancel
        </button>
      </div>
    </form>
  );
}

type InputProps = {
  readonly label: string;
  readonly value: string;
  readonly set: (value: string) => void;
  readonly hint?: string;
  readonly type?: string;
  readonly isRequired?: boolean;
  readonly isDisabled?: boolean;
};

export function TextField({ label, value, set, hint, type = "text", isRequired = false, isDisabled = false }: InputProps) {
  const id = useId();
  return (
    <div className="admin-field">
      <label htmlFor={id}>{label}</label>
      <input
        id={id}
        className="input"
        type={type}
        step="any"
        value={value}
        required={isRequired}
        disabled={isDisabled}
        aria-describedby={hint === undefined ? undefined : `${id}-hint`}
        onChange={(event) => set(event.target.value)}
      />
      {hint !== undefined && (
        <span id={`${id}-hint`} className="soft">
          {hint}
        </span>
      )}
    </div>
  );
}

type ChoiceProps<Value extends string> = {
  readonly label: string;
  readonly value: Value;
  readonly choices: Readonly<Record<Value, string>>;
  readonly set: (value: Value) => void;
};

export function ChoiceField<Value extends string>({ label, value, choices, set }: ChoiceProps<Value>) {
  const id = useId();
  return (
    <div className="admin-field">
      <label htmlFor={id}>{label}</label>
      <select id={id} className="select" value={value} onChange={(event) => set(event.target.value as Value)}>
        {Object.entries<string>(choices).map(([name, title]) => (
          <option key={name} value={name}>
            {title}
          </option>
        ))}
      </select>
    </div>
  );
}

/** The words of a text that is separated by spaces or commas. */
export function words(text: string): string[] {
  return text.split(/[\s,]+/).filter((word) => word !== "");
}

/** Words that may be none: then undefined. */
export function wordsOrAll(text: string): string[] | undefined {
  const found = words(text);
  return found.length === 0 ? undefined : found;
}
