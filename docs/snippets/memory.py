import asyncio

from greenroom import MemoryEntry, SqliteMemoryService, types


async def main() -> None:
    memory = SqliteMemoryService("memory.db")  # embeddings=LocalEmbeddings("model.gguf"): also by meaning
    note = MemoryEntry(id="drink", content=types.UserContent("Ann prefers green tea"))
    await memory.add_memories(app_name="concierge", user_id="ann", memories=[note])
    found = await memory.search_memory(app_name="concierge", user_id="ann", query="Which tea?")
    for entry in found.memories:
        print(entry.content.text())
    await memory.close()


asyncio.run(main())
