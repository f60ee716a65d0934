"""Tools made of an OpenAPI document: what it says, the requests it means, and the calls."""
