import { QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { GreenroomError } from "greenroom-client";
import { createRoot } from "react-dom/client";
import { router } from "./router";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/frame.css";
import { applyTheme } from "./theme";

applyTheme();

/** A reply without a valid key leads to the sign-in page, which returns to this address. */
function signInWhenAsked(error: unknown): void {
  const { pathname, href } = router.state.location;
  if (!(error instanceof GreenroomError) || error.status !== 401 || pathname === "/sign-in") return;
  void router.navigate({ to: "/sign-in", search: { next: href } });
}

const queries = new QueryClient({
  queryCache: new QueryCache({ onError: signInWhenAsked }),
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      retry: (count, error) => count < 3 && !(error instanceof GreenroomError && error.status < 500),
    },
  },
});

const root = document.getElementById("root");
if (root !== null) {
  createRoot(root).render(
    <QueryClientProvider client={queries}>
      <RouterProvider router={router} />
    </QueryClientProvider>,
  );
}
