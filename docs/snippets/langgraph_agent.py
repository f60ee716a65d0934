from typing import Any

from langgraph.graph import START, MessagesState, StateGraph

from greenroom import ChatGreenroom, LangGraphAgent

model = ChatGreenroom(model="local/smollm2-135m")


async def chat(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node("chat", chat)
builder.add_edge(START, "chat")

root_agent = LangGraphAgent(name="desk", graph=builder, instruction="Answer briefly.")
