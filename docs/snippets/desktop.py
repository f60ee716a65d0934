from greenroom import ComputerUseToolset, LlmAgent, XvfbComputer

NO_BROWSER = ["open_web_browser", "navigate", "search", "go_back", "go_forward"]

editor = LlmAgent(
    name="editor",
    model="gemini-2.5-computer-use-preview-10-2025",
    instruction="You write notes with the editor on the screen.",
    tools=[
        ComputerUseToolset(
            computer=XvfbComputer(command=["mousepad", "notes.txt"], screen_size=(1280, 800)),
            excluded_predefined_functions=NO_BROWSER,
        )
    ],
)
