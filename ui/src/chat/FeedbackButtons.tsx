import { useQuery, useQueryClient } from "@tanstack/react-query";
import type { Feedback } from "greenroom-client";
import { ThumbsDown, ThumbsUp } from "lucide-react";
import { Suspense, lazy, useState } from "react";
import { type SessionPlace, client } from "../api";
import { ErrorLine } from "../components/ErrorLine";
import { useChat } from "./context";

const MakeCase = lazy(() => import("./MakeCase"));

const NAME = "helpful";
const MAX_COMMENT = 10_000;

/** The thumbs that were given on a session's answers, newest first. */
function useThumbs(place: SessionPlace) {
  const queries = useQueryClient();
  const queryKey = ["feedback", place.app, place.user, place.session];
  const listed = useQuery({
    queryKey,
    queryFn: async () => (await client.listSessionFeedback(place, { name: NAME, limit: 1000 })).feedback,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const change = (of: (before: readonly Feedback[]) => readonly Feedback[]) =>
    queries.setQueryData<readonly Feedback[]>(queryKey, (before) => of(before ?? []));
  return {
    thumbs: listed.data ?? [],
    put: (given: Feedback) => change((before) => [given, ...before.filter((one) => one.id !== given.id)]),
    remove: (id: string) => change((before) => before.filter((one) => one.id !== id)),
  };
}

/** Thumbs up and down for an answer, with a comment on a thumb down, and what others said about it. */
export function FeedbackButtons({ eventId }: { eventId: string }) {
  const { place } = useChat();
  const { thumbs, put, remove } = useThumbs(place);
  const [givenId, setGivenId] = useState<string | null>(null);
  const [comment, setComment] = useState<string | null>(null);
  const [isMakingCase, setMakingCase] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);

  const ofEvent = thumbs.filter((one) => one.eventId === eventId);
  const own = ofEvent.find((one) => one.id === givenId || one.subject === place.user);
  const isKept = ofEvent.length > 0 || comment !== null || error !== null;

  async function catching(action: () => Promise<void>) {
    setError(null);
    setBusy(true);
    try {
      await action();
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  }

  const give = (score: boolean, text = "") =>
    catching(async () => {
      const words = text.trim();
      const given = await client.giveFeedback(place, eventId, { name: NAME, score, ...(words === "" ? {} : { comment: words }) });
      setGivenId(given.id);
      put(given);
      setComment(score || text !== "" ? null : "");
    });

  const withdraw = (given: Feedback) =>
    catching(async () => {
      await client.deleteFeedback(place, eventId, { name: NAME });
      remove(given.id);
      setComment(null);
    });

  const thumb = (score: boolean, label: string) => {
    const isPressed = own?.score === score;
    return (
      <button
        type="button"
        className="button quiet small"
        aria-pressed={isPressed}
        aria-label={label}
        title={label}
        aria-disabled={isBusy}
        onClick={() => {
          if (!isBusy) void (isPressed && own !== undefined ? withdraw(own) : give(score));
        }}
      >
        {score ? <ThumbsUp size={14} aria-hidden="true" /> : <ThumbsDown size={14} aria-hidden="true" />}
      </button>
    );
  };

  return (
    <>
      <div className={isKept ? "thumbs" : "thumbs reveal"} role="group" aria-label="Feedback">
        {thumb(true, "Thumbs up")}
        {thumb(false, "Thumbs down")}
      </div>
      {ofEvent.filter((one) => one !== own || one.comment !== undefined).map((one) => (
        <p key={one.id} className="feedback-line soft">
          {one.score === true && <ThumbsUp size={14} aria-label="Thumbs up" />}
          {one.score === false && <ThumbsDown size={14} aria-label="Thumbs down" />}
          {typeof one.score === "number" && <span>{one.score}</span>}
          <span>
            {one.subject}
            {one.comment !== undefined && `: ${one.comment}`}
          </span>
        </p>
      ))}
      {comment === null && ofEvent.some((one) => one.score === false) && !isMakingCase && (
        <button type="button" className="button quiet small make-case" onClick={() => setMakingCase(true)}>
          Make a case
        </button>
      )}
      {isMakingCase && (
        <Suspense>
          <MakeCase eventId={eventId} close={() => setMakingCase(false)} />
        </Suspense>
      )}
      {comment !== null && (
        <form
          className="feedback-form"
          aria-label="Comment on the answer"
          onSubmit={(event) => {
            event.preventDefault();
            void (comment.trim() === "" ? setComment(null) : give(false, comment));
          }}
          onKeyDown={(event) => {
            if (event.key !== "Escape") return;
            event.stopPropagation();
            setComment(null);
          }}
        >
          <textarea
            className="textarea"
            aria-label="Comment"
            placeholder="The reason, in words (optional)"
            autoFocus
            rows={2}
            maxLength={MAX_COMMENT}
            value={comment}
            onChange={(event) => setComment(event.target.value)}
          />
          <div className="buttons">
            <button type="submit" className="button primary small" disabled={isBusy || comment.trim() === ""}>
              Send comment
            </button>
            <button type="button" className="button quiet small" onClick={() => setComment(null)}>
              No comment
            </button>
          </div>
        </form>
      )}
      {error !== null && <ErrorLine error={error} />}
    </>
  );
}
