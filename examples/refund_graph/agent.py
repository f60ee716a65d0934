"""A graph of LangGraph for refunds: it looks the order up, asks a person about large sums, and writes to the customer.

The module has a `graph`, as LangGraph's own projects do; greenroom hosts it. Its question is a request in the inbox,
and the answer may come after a restart. `GREENROOM_MODEL` names another model.
"""

import os
import re
from typing import Any

from langchain_core.messages import AIMessage, SystemMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from greenroom import ChatGreenroom

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"

ORDERS = {"7": 19.0, "8": 250.0}
LIMIT = 100.0

model = ChatGreenroom(model=MODEL)


class Refund(MessagesState):
    order: str
    amount: float
    decision: str


def look_up(state: Refund) -> dict[str, Any]:
    """Finds the order in the message."""
    found = re.search(r"\d+", state["messages"][-1].text)
    order = found[0] if found else ""
    if order not in ORDERS:
        return {"order": "", "messages": [AIMessage("Which order? I know the numbers 7 and 8.")]}
    return {"order": order, "amount": ORDERS[order], "decision": "approved"}


def decide(state: Refund) -> dict[str, Any]:
    """Asks a person about a large sum, and waits for as long as it takes."""
    if state["amount"] <= LIMIT:
        return {}
    question = f"Refund {state['amount']:.2f} EUR for order {state['order']}?"
    return {"decision": interrupt({"question": question, "answers": ["approved", "refused"]})}


async def write(state: Refund) -> dict[str, Any]:
    """Writes to the customer."""
    task = f"The refund of {state['amount']:.2f} EUR for order {state['order']} is {state['decision']}. Say so kindly."
    return {"messages": [await model.ainvoke([SystemMessage(task), *state["messages"]])]}


def has_order(state: Refund) -> str:
    return "decide" if state["order"] else END


builder: Any = StateGraph(Refund)
builder.add_node("look_up", look_up)
builder.add_node("decide", decide)
builder.add_node("write", write)
builder.add_edge(START, "look_up")
builder.add_conditional_edges("look_up", has_order, ["decide", END])
builder.add_edge("decide", "write")
builder.add_edge("write", END)

graph = builder.compile()
