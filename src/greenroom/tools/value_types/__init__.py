"""Python types as models see them: JSON Schemas, and values to and from JSON.

`type_schema` is the way in: it chooses between `plain_types` (msgspec) and `pydantic_types`.
`answer_text` reads values from the texts of models.
"""
