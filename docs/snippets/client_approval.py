from greenroom import Client


def pay(url: str) -> None:
    with Client(url) as client:
        session = client.create_session(app_name="approval", user_id="ada")
        stream = client.run(
            app_name="approval", user_id="ada", session_id=session.id, message="Pay 4200 to Roof Repairs."
        )
        stream.wait()
        for request in stream.requests:
            print(request.name, request.args)
            for event in client.approve(stream.run, request):
                if event.content is not None:
                    print(event.content.text())


if __name__ == "__main__":
    pay("http://127.0.0.1:8000")
