"""Names of fields and collections of the documents in Firestore. Source: ADK for Java."""

from __future__ import annotations

from typing import Final


class DocumentKeys:
    """Names of fields."""

    APP_NAME: Final = "appName"
    AUTHOR: Final = "author"
    ID: Final = "id"
    MODEL: Final = "model"
    STATE: Final = "state"
    TIMESTAMP: Final = "timestamp"
    UPDATE_TIME: Final = "updateTime"
    USER: Final = "user"
    USER_ID: Final = "userId"


class DocumentCollections:
    """Names of collections. Sessions are below a document of their user, events below their session."""

    ROOT: Final = "adk-session"
    SESSIONS: Final = "sessions"
    EVENTS: Final = "user-event"
    APP_STATE: Final = "app-state"
    USER_STATE: Final = "user-state"
