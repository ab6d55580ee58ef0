"""`python -m pvdm.cli` is `pvdm`."""

import sys

from pvdm.cli.app import main

sys.exit(main())
