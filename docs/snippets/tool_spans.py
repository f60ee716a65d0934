from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from greenroom import LlmAgent

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
tracer = provider.get_tracer("weather")


def get_weather(city: str) -> dict[str, str | int]:
    """Weather of a city."""
    with tracer.start_as_current_span("ask the station"):
        return {"city": city, "temp": 18}


root_agent = LlmAgent(name="weather", model="local/smollm2-135m", tools=[get_weather])
