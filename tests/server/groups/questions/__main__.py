"""Asks one broker or compares two: see the package."""

import sys

from tests.server.groups.questions.answers import main

main(sys.argv[1:])
