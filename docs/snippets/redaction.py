from collections.abc import Iterable

from greenroom import App, Finding, LlmAgent, Redaction, TextPattern

CODE_NAMES = ("Bluebird", "Nightjar")


def code_names(text: str) -> Iterable[Finding]:
    """Finds the names of secret projects."""
    for name in CODE_NAMES:
        start = text.find(name)
        while start != -1:
            yield Finding(start, start + len(name), "project")
            start = text.find(name, start + 1)


app = App(
    name="helpdesk",
    root_agent=LlmAgent(name="helpdesk", model="gemini-2.5-flash"),
    redaction=Redaction(
        fields=["ssn", "customer.address"],
        patterns=["email", "phone", "card_number", "iban", "token", TextPattern("employee", r"\bE-\d{6}\b")],
        finders=[code_names],
    ),
)
