from google.adk.agents import LlmAgent
from google.adk.planners import PlanReActPlanner

root_agent = LlmAgent(name="a", model="scripted", planner=PlanReActPlanner())
REPLIES = ["/*PLANNING*/ think. /*REASONING*/ so. /*FINAL_ANSWER*/ 42"]
MESSAGES = ["hi"]
