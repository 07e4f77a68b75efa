"""`python -m perdure_operator`."""

from perdure_operator.main import main

raise SystemExit(main())
