"""Google Cloud's databases and services, as far as several stores share them."""
