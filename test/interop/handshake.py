"""What the communication managers of both sides say, as tshark reads it."""
import json
import shutil
import subprocess

from packages import Unavailable

KINDS = {0x10: "req", 0x11: "mra", 0x12: "rej", 0x13: "rep", 0x14: "rtu", 0x15: "dreq", 0x16: "drsp"}
# Fields of a REQ that say the same whoever sends it, as the kernel's rping does.
SAME_IN_REQ = """serviceid localqkey responderres initdepth localeecn remoteeecn transpsvctype remoteresptout
    localresptout e2eflowctrl retrcount rnrretrcount pkey pppmtu rdcexist maxcmretr srq ext_transport
    prim_locallid prim_remotelid prim_tfcclass prim_hoplim prim_sl prim_subnetlocal alt_locallid alt_remotelid
    alt_localgid alt_remotegid ip_cm.majv ip_cm.minv ip_cm.ipv ip_cm.reserved ip_cm.private""".split()
SAME_IN_REP = """localqkey localeecn respres initdepth tgtackdelay failoveracc e2eflowctrl rnrretrcount srq
    private""".split()


def _flat(layer, into):
    """tshark nests; the last of fields that appear twice is kept."""
    for name, value in layer.items():
        if isinstance(value, dict):
            _flat(value, into)
        elif isinstance(value, str):
            into[name.removeprefix("infiniband.")] = value
    return into


def _decoded(path):
    if not shutil.which("tshark"):
        raise Unavailable("programs are missing: apt-get install tshark")
    command = ["tshark", "-r", str(path), "-Y", "infiniband.mad", "-T", "json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return [packet["_source"]["layers"] for packet in json.loads(result.stdout or "[]")]


def messages(path):
    """Messages in a capture, in order: {"kind", "from" and "to" (IP addresses), field: value as text}."""
    found = []
    for layers in _decoded(path):
        fields = _flat(layers["infiniband"], {})
        ip = layers.get("ip") or layers["ipv6"]
        family = "ip" if "ip" in layers else "ipv6"
        kind = KINDS.get(int(fields["mad.attributeid"], 16), fields["mad.attributeid"])
        ours = {name.removeprefix(f"cm.{kind}."): value for name, value in fields.items()}
        found.append(ours | {"kind": kind, "from": ip[f"{family}.src"], "to": ip[f"{family}.dst"]})
    return found


def speakers(found):
    """Who says what: {kind: whether the sender of the REQ}. Captures do not keep the order of both sides.
    Who is slow may ask for patience by an MRA."""
    active = next(message["from"] for message in found if message["kind"] == "req")
    return {message["kind"]: message["from"] == active for message in found if message["kind"] != "mra"}
