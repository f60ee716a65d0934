"""Tools for Google Cloud's services, made for models: `GoogleTool`, its credentials, and a toolset per service."""
