"""Corpora of the Hugging Face hub: whole shards of parquet, tokenised by several processes."""
