"""Any trained cell as a `transformers` model; nothing here is imported unless one is used."""
