import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useRouter, useSearch } from "@tanstack/react-router";
import type { SignedIn } from "greenroom-client";
import { useId, useState } from "react";
import { call, listApps } from "../api";
import { ErrorLine } from "../components/ErrorLine";
import { setChosenUser, withChosenUser } from "../user";
import "./pages.css";

/** Stores an API key or a token in a cookie, and returns to the page that needed it. */
export function SignInPage() {
  const { next } = useSearch({ strict: false }) as { next?: string };
  const router = useRouter();
  const queries = useQueryClient();
  const [key, setKey] = useState("");
  const id = useId();
  const signIn = useMutation({
    mutationFn: async () => {
      const { userId } = await call<SignedIn>("POST", "/sign-in", { key: key.trim() });
      await listApps();
      // Other users' sessions would only be refused.
      if (typeof userId === "string") setChosenUser(userId);
    },
    onSuccess: async () => {
      queries.clear();
      // Addresses of this page only: no other site's.
      await router.navigate({ to: next?.startsWith("/") && !next.startsWith("//") ? withChosenUser(next) : "/" });
    },
  });
  return (
    <main className="page sign-in">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          signIn.mutate();
        }}
      >
        <h1>Sign in</h1>
        <p>This server wants an API key, or a token of its identity provider.</p>
        <label htmlFor={id}>Key</label>
        <input
          id={id}
          className="input mono"
          type="password"
          autoComplete="current-password"
          autoFocus
          required
          value={key}
          onChange={(event) => setKey(event.target.value)}
        />
        <button type="submit" className="button primary" disabled={key.trim() === "" || signIn.isPending}>
          Sign in
        </button>
        {signIn.isError && <ErrorLine error={signIn.error} />}
        <details>
          <summary>Where do I get a key?</summary>
          <p>On the server, this command creates one:</p>
          <pre className="wrapped example">greenroom keys create --user ann --scopes run read debug</pre>
        </details>
      </form>
    </main>
  );
}
