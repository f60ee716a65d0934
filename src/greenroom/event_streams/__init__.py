"""How stored and partial events reach whoever is watching."""
