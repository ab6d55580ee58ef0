"""`python -m pvdm.cli` is `pvdm`."""

import sys

from pvdm.cli import main

sys.exit(main())
