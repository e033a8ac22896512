# SPDX-License-Identifier: Apache-2.0
"""Tests without a result."""


class Void(Exception):
    """The run has no result, because the emulator or the machine was too late.

    A test that raises it is repeated once. After the second time it is skipped.
    """
