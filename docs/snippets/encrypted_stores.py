from greenroom import EncryptedArtifactService, FileArtifactService, SqliteSessionService
from greenroom.encryption.from_uri import key_provider_from_uri

keys = key_provider_from_uri("env://GREENROOM_KEYS")
sessions = SqliteSessionService("chats.db", keys=keys)
artifacts = EncryptedArtifactService(FileArtifactService("artifacts"), keys)
