#!/usr/bin/env python3
"""What a TCP port that is reserved for a server is worth."""
import errno
import socket
import unittest

import tcp_ports

ANY = ((socket.AF_INET, ""), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::"))


class ReservedPort(unittest.TestCase):
    def setUp(self):
        self.port = self.enterContext(tcp_ports.reserved())

    def bound(self, family, address, reuses):
        other = self.enterContext(socket.socket(family))
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuses)
        other.bind((address, self.port))
        return other

    def test_a_server_can_listen_there(self):
        for family, address in ANY:
            with self.subTest(address=address), self.bound(family, address, True) as server:
                server.listen()
                with socket.create_connection(server.getsockname()[:2], timeout=60):
                    server.accept()[0].close()

    def test_nobody_else_has_it(self):
        for family, address in ANY:
            with self.subTest(address=address), self.assertRaises(OSError) as raised:
                self.bound(family, address, False)
            self.assertEqual(raised.exception.errno, errno.EADDRINUSE)


if __name__ == "__main__":
    unittest.main()
