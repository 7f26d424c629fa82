"""A child's peak is its own, however large its parent is."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the kernel's own count of memory is read on Linux only"
)

ROOT = Path(__file__).parents[2]
CHILD = "from benchmarks.process_memory import peak_bytes; print(peak_bytes())"


def test_a_child_does_not_report_its_parents_peak():
    large = np.ones(2**26)  # 512 MiB, resident while the child starts
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(done.stdout) < large.nbytes / 4


def test_the_peak_counts_from_where_it_was_forgotten():
    code = (
        "import numpy as np; from benchmarks.process_memory import *; x = np.ones(2**25); del x; high = peak_bytes();"
        "forget_peak(); low = peak_bytes(); y = np.ones(2**24); print(high - low, peak_bytes() - low, resident_bytes())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    fell, rose, resident = (int(part) for part in done.stdout.split())
    assert fell > 2**27
    assert 2**26 < rose < 2**28
    assert resident > 2**27
