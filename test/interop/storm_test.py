#!/usr/bin/env python3
"""What extensions_test.py makes of the packets that were seen in a storm of losses and marks."""
import unittest

from extensions_test import Lab


def seen(frames=1000, lost=10, marked=300, cnps=50):
    """So many frames of each side."""
    return {"engine": {"roce": frames, "ecn_capable": frames, "cnps": cnps}, "guest": {"roce": frames},
            "lost": lost, "marked": marked}


class Storm(unittest.TestCase):
    def refuses(self, text, found, loss=0.01, marked=0.3):
        with self.assertRaisesRegex(AssertionError, text):
            Lab.speaks_plainly(found)
            Lab.was_a_storm(found, loss, marked)

    @staticmethod
    def accepts(found, loss=0.01, marked=0.3):
        Lab.speaks_plainly(found)
        Lab.was_a_storm(found, loss, marked)

    def test_losses_and_marks_that_were_set_must_be_there(self):
        self.accepts(seen())
        self.refuses("nothing was lost, about 20 packets", seen(lost=0))
        self.refuses("nothing was marked, about 300 packets", seen(marked=0, cnps=0))

    def test_few_frames_may_escape_both(self):
        self.accepts(seen(frames=30, lost=0, marked=0, cnps=0))
        self.accepts(seen(lost=0, marked=0, cnps=0), 0, 0)

    def test_marks_ask_for_notifications_but_not_each(self):
        self.accepts(seen(frames=30, lost=0, marked=3, cnps=0))
        self.refuses("marks without CNPs", seen(cnps=0))
        self.refuses("CNPs without marks", seen(marked=0, cnps=1), 0, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
