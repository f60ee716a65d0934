"""An HTTP client that is safe to let a model use, and the text of HTML pages."""
