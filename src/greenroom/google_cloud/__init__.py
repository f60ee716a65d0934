"""Access to Google Cloud, shared by the stores there.

`credentials` gets access tokens, of a service account or the machine. `firestore` is a Firestore database with its
conversions, and `document_names` the names that ADK for Java uses in it. `vertex` calls Vertex AI's REST interface,
and `sandboxes` the part of it for containers of agents.
"""
