"""An operator of a web browser: it looks at pages, clicks and types. The browser reaches the listed sites only, and a
click that the model itself finds risky, such as an order, waits for a person's approval.

Try: "What does Wikipedia say about the greenroom of a theatre?" It needs a model that can use computers, which
`GREENROOM_COMPUTER_MODEL` names, with its key, and a browser: `playwright install chromium`, or the path of yours in
`BROWSER`. `BROWSER_HOSTS` names other sites.
"""

from __future__ import annotations

import os

from greenroom import ComputerUseToolset, LlmAgent, PlaywrightComputer

MODEL = os.environ.get("GREENROOM_COMPUTER_MODEL") or "gemini-2.5-computer-use-preview-10-2025"
HOSTS = os.environ.get("BROWSER_HOSTS") or "wikipedia.org *.wikipedia.org *.wikimedia.org"

computer = PlaywrightComputer(
    screen_size=(1280, 800),
    executable_path=os.environ.get("BROWSER"),
    allowed_hosts=HOSTS.split(),
    search_url="https://en.wikipedia.org",
)

root_agent = LlmAgent(
    name="browser_operator",
    model=MODEL,
    description="Does things on web sites.",
    instruction="You use a browser for the user. Look at the page after each action; say what you found or did. Ask "
    "for approval before you send a form, pay, or delete something.",
    # The list of hosts decides what may be reached, also on this machine.
    tools=[ComputerUseToolset(computer=computer, allow_private_network_access=True)],
)
