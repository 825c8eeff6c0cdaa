"""TCP ports for programs that are about to listen."""
import contextlib
import socket


@contextlib.contextmanager
def reserved():
    """A port that nobody is given meanwhile, neither who binds to any port nor who connects. Who asks for it
    by its number, and with SO_REUSEADDR, as servers do, can listen there."""
    both = socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if both else socket.AF_INET) as holder:
        if both:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", 0))
        yield holder.getsockname()[1]
