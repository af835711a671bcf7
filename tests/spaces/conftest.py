"""These tests hold us against gymnasium's own functions, as they are from version 1.4 on."""

import gymnasium

collect_ignore_glob = []
if tuple(map(int, gymnasium.__version__.split(".")[:2])) < (1, 4):
    collect_ignore_glob.append("test_*.py")
