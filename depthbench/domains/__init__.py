"""Domain NLL: how well a trained cell predicts code, STEM and math that it was not trained on."""

from depthbench.domains.measure import evaluate as evaluate
from depthbench.domains.measure import prepare as prepare
from depthbench.domains.measure import write as write
