from greenroom import SqliteSessionService
from greenroom.server import create_app

asgi = create_app(agents_dir="agents", session_service=SqliteSessionService("greenroom.db"))
