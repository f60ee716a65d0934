import os

from standardwebhooks.webhooks import Webhook, WebhookVerificationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

webhook = Webhook(os.environ["WEBHOOK_SECRET"])
received: set[str] = set()  # of a real receiver: a table with a unique key


async def receive(request: Request) -> Response:
    try:
        event = webhook.verify(await request.body(), dict(request.headers))
    except WebhookVerificationError:
        return Response(status_code=401)

    if request.headers["webhook-id"] not in received:
        received.add(request.headers["webhook-id"])
        print(event["type"], event["data"]["id"])
    return Response(status_code=204)


app = Starlette(routes=[Route("/hook", receive, methods=["POST"])])
