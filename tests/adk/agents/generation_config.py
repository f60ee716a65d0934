from google.adk.agents import LlmAgent
from google.genai import types

seen = []


def look(callback_context, llm_request):
    config = llm_request.config
    callback_context.state["config"] = {
        "temperature": config.temperature,
        "top": config.max_output_tokens,
        "category": config.safety_settings[0].category.value,
        "instruction": "Be kind." in config.system_instruction,
        "tools": sorted(llm_request.tools_dict),
    }


root_agent = LlmAgent(
    name="a",
    model="scripted",
    instruction="Be kind.",
    before_model_callback=look,
    generate_content_config=types.GenerateContentConfig(
        temperature=0.5,
        max_output_tokens=100,
        safety_settings=[
            types.SafetySetting(
                category=types.HarmCategory.HARM_CATEGORY_HATE_SPEECH, threshold=types.HarmBlockThreshold.BLOCK_NONE
            )
        ],
    ),
)
REPLIES = ["ok"]
MESSAGES = ["hi"]
