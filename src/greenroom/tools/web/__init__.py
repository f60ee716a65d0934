"""An HTTP client that is safe to let a model use, and the text of HTML pages.

`http_client` limits addresses (`address_guard`), redirects, time and size; `page_text` reads pages.
"""
