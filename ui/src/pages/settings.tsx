import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useId, useState } from "react";
import { DEFAULT_USER, SERVER, call } from "../api";
import { ErrorLine } from "../components/ErrorLine";
import { Facts } from "../inspector/Parts";
import "../inspector/inspector.css";
import { type Theme, setTheme, theme } from "../theme";
import { chosenUser, setChosenUser } from "../user";
import { reload } from "../reload";
import "./pages.css";

const THEMES: readonly (readonly [Theme, string])[] = [
  ["system", "As the system"],
  ["light", "Light"],
  ["dark", "Dark"],
];

/** Settings of this browser: theme, user id and key. */
export function SettingsPage() {
  return (
    <main className="page settings">
      <h1>Settings</h1>
      <ThemeChoice />
      <UserChoice />
      <SignedIn />
      <About />
    </main>
  );
}

function ThemeChoice() {
  const [chosen, choose] = useState(theme);
  return (
    <fieldset>
      <legend>Theme</legend>
      <div className="segments">
        {THEMES.map(([name, title]) => (
          <label key={name}>
            <input
              type="radio"
              name="theme"
              checked={name === chosen}
              onChange={() => {
                setTheme(name);
                choose(name);
              }}
            />
            {title}
          </label>
        ))}
      </div>
    </fieldset>
  );
}

function UserChoice() {
  const [user, setUser] = useState(chosenUser);
  const [isSaved, setSaved] = useState(true);
  const id = useId();
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        const wanted = user.trim() || DEFAULT_USER;
        setChosenUser(wanted);
        setUser(wanted);
        setSaved(true);
      }}
    >
      <h2>
        <label htmlFor={id}>User id</label>
      </h2>
      <p className="soft">Whose sessions a chosen app opens with. Links name their user, whatever is set here.</p>
      <div className="row">
        <input
          id={id}
          className="input"
          value={user}
          autoComplete="off"
          onChange={(event) => {
            setUser(event.target.value);
            setSaved(false);
          }}
        />
        <button type="submit" className="button" disabled={isSaved}>
          {isSaved ? "Saved" : "Save"}
        </button>
      </div>
    </form>
  );
}

function SignedIn() {
  const queries = useQueryClient();
  const signOut = useMutation({
    mutationFn: () => call("POST", "/sign-in", { key: "" }),
    onSuccess: () => reload(queries, []),
  });
  return (
    <section>
      <h2>Key</h2>
      <p className="soft">A server with API keys shows what your key allows. The key is kept in a cookie that scripts can't read.</p>
      <div className="row">
        <Link to="/sign-in" className="button link">
          Sign in with a key
        </Link>
        <button type="button" className="button" onClick={() => signOut.mutate()} disabled={signOut.isPending}>
          Sign out
        </button>
        <span role="status" className="soft">
          {signOut.isSuccess && "Signed out"}
        </span>
      </div>
      {signOut.isError && <ErrorLine error={signOut.error} />}
    </section>
  );
}

function About() {
  const version = useQuery({ queryKey: ["version"], queryFn: () => call<Readonly<Record<string, string>>>("GET", "/version") });
  return (
    <section>
      <h2>Server</h2>
      {version.isError && <ErrorLine error={version.error} />}
      <Facts facts={Object.entries(version.data ?? {}).map(([name, value]) => [name.replaceAll("_", " "), value] as const)} />
      <p>
        <a href={`${SERVER}/docs`}>API reference</a>
      </p>
    </section>
  );
}
