"""A module whose import takes longer than anybody waits."""

import time

time.sleep(600)
