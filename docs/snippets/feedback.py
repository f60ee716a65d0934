from greenroom import Client


def ask_and_rate(url: str, question: str, is_helpful: bool, comment: str) -> None:
    with Client(url) as client:
        session = client.create_session(app_name="weather", user_id="ada")
        stream = client.run(app_name="weather", user_id="ada", session_id=session.id, message=question)
        answer = list(stream)[-1]
        client.give_feedback(
            "helpful",
            app_name="weather",
            user_id="ada",
            session_id=session.id,
            event_id=answer.id,
            score=is_helpful,
            comment=comment,
        )


def print_complaints(url: str) -> None:
    with Client(url) as client:
        for feedback in client.list_feedback(app_name="weather", name="helpful", max_score=0).feedback:
            print(f"{feedback.subject}: {feedback.comment}")


if __name__ == "__main__":
    ask_and_rate("http://127.0.0.1:8000", "Will it rain?", is_helpful=False, comment="It doesn't say when.")
    print_complaints("http://127.0.0.1:8000")
