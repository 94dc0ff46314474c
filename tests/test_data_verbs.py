"""What `data prepare` says before it fetches."""

from depthbench.data.hub.estimate import Estimate, Sample
from depthbench.data_verbs import said

SAMPLE = Sample(
    bytes_per_token=4.5,
    bytes_per_second=1536 * 2**10,
    tokens_per_document=1000.0,
    tokens_per_file_byte=0.5,
)


def test_what_lies_ahead_is_said_in_a_sentence() -> None:
    ahead = Estimate(
        shards=14,
        available_tokens=9e9,
        text_bytes=36 * 2**30,
        download_bytes=20 * 2**30,
        disk_bytes=34 * 2**30,
        seconds=3 * 3600 + 61,
        sample=SAMPLE,
        processes=2,
    )
    assert said(ahead) == (
        "14 shards, 20 GiB to download, 36 GiB of text at 4.50 bytes per token; tokenising takes "
        "about 3:01:01 in 2 processes at 1.5 MiB a second each; at most 34 GiB of disk"
    )
