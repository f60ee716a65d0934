import type { Problem, ProblemCause } from "./wire.ts";

/**
 * An error of the server, or of the network.
 *
 * code: the name of the server's error; `Unavailable` when no answer came, `CallerError` or `RunFailed` for other pages of
 * a proxy. status: the HTTP status, 0 without an answer.
 */
export class GreenroomError extends Error {
  readonly code: string;
  readonly status: number;
  readonly errors: readonly ProblemCause[];

  constructor(code: string, status: number, message: string, errors: readonly ProblemCause[] = []) {
    super(message);
    this.name = "GreenroomError";
    this.code = code;
    this.status = status;
    this.errors = errors;
  }
}

export function errorOf(problem: Problem): GreenroomError {
  return new GreenroomError(problem.code ?? codeOf(problem.status), problem.status, problem.detail, problem.errors);
}

export async function errorOfReply(reply: Response): Promise<GreenroomError> {
  try {
    const problem = (await reply.json()) as Problem | null;
    if (typeof problem?.detail === "string") return errorOf({ ...problem, status: reply.status });
  } catch {
    // not JSON: a proxy's page
  }
  return new GreenroomError(codeOf(reply.status), reply.status, `${reply.status} ${reply.statusText}`.trim());
}

function codeOf(status: number): string {
  if (status === 404) return "NotFound";
  if (status < 500) return "CallerError";
  return status === 500 ? "RunFailed" : "Unavailable";
}
