"""`python -m depthbench.harness …`: lm-eval's command line with `--model depthbench`."""

import sys

from depthbench.errors import DepthbenchError
from depthbench.harness.command import main

try:
    main(sys.argv[1:])
except DepthbenchError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
