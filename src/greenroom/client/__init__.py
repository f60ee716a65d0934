"""The Python client of greenroom servers: typed calls, and streams that resume automatically."""
