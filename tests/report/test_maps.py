"""Heat maps: the pixel that a value becomes, and the one scale that makes maps comparable."""

import base64
from io import BytesIO

import matplotlib
import numpy as np
import pytest
from PIL import Image

from depthbench.report.depth import spark
from depthbench.report.maps import common_limits, data_uri, legend_uri, png, rgb

NAN = float("nan")


def pixels(content: bytes) -> np.ndarray:
    """(rows, columns, red green blue alpha)."""
    return np.array(Image.open(BytesIO(content)).convert("RGBA"))


def colour(name: str, place: float) -> list[int]:
    return [round(255 * part) for part in matplotlib.colormaps[name](place)[:3]]


def test_one_pixel_a_pair_and_none_where_there_is_none() -> None:
    image = pixels(png(np.array([[NAN, 0.0, 0.5], [NAN, NAN, 0.25]]), (0.0, 0.5)))
    assert image.shape == (2, 3, 4)
    assert (image[..., 3] == 0).tolist() == [[True, False, False], [True, True, False]]
    assert image[0, 1, :3].tolist() == colour("viridis", 0.0)
    assert image[0, 2, :3].tolist() == colour("viridis", 1.0)
    middle = np.array(colour("viridis", 0.5))
    assert np.abs(image[1, 2, :3] - middle).max() <= 4  # half a shade


def test_what_lies_beyond_the_scale_has_the_colour_of_its_end() -> None:
    image = pixels(png(np.array([[-3.0, -1.0, 1.0, 7.0]]), (-1.0, 1.0)))
    assert image[0, 0].tolist() == image[0, 1].tolist()
    assert image[0, 2].tolist() == image[0, 3].tolist()
    assert image[0, 1, :3].tolist() == colour("RdBu_r", 0.0)


def test_zero_is_nearly_white_where_values_have_signs() -> None:
    assert pixels(png(np.array([[0.0]]), (-1.0, 1.0)))[0, 0, :3].min() > 235


def test_a_value_has_one_colour_in_every_map() -> None:
    flat = pixels(png(np.array([[0.3, 0.3]]), (0.0, 1.0)))
    steep = pixels(png(np.array([[0.3, 1.0]]), (0.0, 1.0)))
    assert flat[0, 0].tolist() == steep[0, 0].tolist()


def test_the_file_figure_has_the_colours_of_the_page() -> None:
    values = np.array([[0.1, 0.9], [NAN, 0.4]])
    page = pixels(png(values, (0.0, 1.0)))
    drawn = (255 * rgb(values, (0.0, 1.0))).round()
    assert drawn[0].tolist() == page[0, :, :3].tolist()
    assert drawn[1, 0].tolist() == [255, 255, 255]


def test_addresses_hold_the_image_itself() -> None:
    head, _, content = data_uri(np.eye(3), (0.0, 1.0)).partition(",")
    assert head == "data:image/png;base64"
    assert pixels(base64.b64decode(content)).shape == (3, 3, 4)
    legend = pixels(base64.b64decode(legend_uri((0.0, 1.0)).partition(",")[2]))
    assert legend[0, 0, :3].tolist() == colour("viridis", 0.0)
    assert legend[0, -1, :3].tolist() == colour("viridis", 1.0)


def test_limits_are_those_the_documents_agree_on_or_hold_everything() -> None:
    found = [np.array([[0.2, NAN]]), np.array([[4.0, 1.0]])]
    assert common_limits([(0.0, 0.3), (0.0, 0.3)], found) == (0.0, 0.3)
    assert common_limits([(0.0, 0.3), (0.0, 0.5)], found) == (0.2, 4.0)
    assert common_limits([None, None], [np.array([[-2.0, 1.0]])]) == (-2.0, 2.0)
    low, high = common_limits([None], [np.array([[1.0]])])
    assert low < high


def test_a_trace_spans_its_box_and_breaks_at_gaps() -> None:
    first, second = spark(np.array([0.0, 1.0, NAN, 0.5]))
    assert first == "1.0,22.0 33.7,2.0"
    assert second == "99.0,12.0"
    assert len(spark(np.array([3.0]))) == 1
    assert spark(np.array([NAN])) == []


@pytest.mark.parametrize("size", [33, 65])
def test_a_map_of_noise_stays_small(size: int) -> None:
    noise = np.random.default_rng(0).random((size, size))
    assert len(png(noise, (0.0, 1.0))) < size * size + 500
