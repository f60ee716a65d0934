import os

import uvicorn

from greenroom import get_fast_api_app

app = get_fast_api_app(agents_dir="agents", web=True, session_service_uri="sqlite:///sessions.db")


@app.get("/health2")
def health() -> dict[str, str]:
    return {"status": "ok"}


if __name__ == "__main__":
    uvicorn.run(app, host="0.0.0.0", port=int(os.environ.get("PORT", "8080")), timeout_graceful_shutdown=5)
