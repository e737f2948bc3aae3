"""Make the vectors, from the specification and not from the Rust code: python3 make.py (needs `cryptography`).

The bytes can never change. Run it again only to add a vector, and read the diff.
"""
import base64
import hashlib
import json
import pathlib
import struct

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

HERE = pathlib.Path(__file__).parent
LOG = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def text(value):
    raw = value.encode()
    return struct.pack(">I", len(raw)) + raw


def events():
    for n in range(1, 13):
        yield dict(
            position=n,
            event_id=bytes([n] * 16),
            aggregate_type="job",
            aggregate_id=f"job_{n % 3}é",
            sequence=(n + 2) // 3,
            event_type="job.queued" if n < 4 else "job.claimed",
            event_version=1 if n < 9 else 300,
            recorded_at_us=-1 if n == 1 else 1_700_000_000_000_000 + n,
            salt=bytes(range(n, n + 16)),
            payload=json.dumps({"type": "queued", "n": n}, separators=(",", ":")),
            metadata=json.dumps({"actor": "system"}, separators=(",", ":")),
        )


def leaf(e):
    payload = sha(b"\x10", e["salt"], e["payload"].encode())
    metadata = sha(b"\x11", e["salt"], e["metadata"].encode())
    canonical = (
        b"stead/leaf/v1\n"
        + struct.pack(">Q", e["position"])
        + e["event_id"]
        + text(e["aggregate_type"])
        + text(e["aggregate_id"])
        + struct.pack(">Q", e["sequence"])
        + text(e["event_type"])
        + struct.pack(">Hq", e["event_version"], e["recorded_at_us"])
        + payload
        + metadata
    )
    return canonical, sha(b"\x00", canonical)


def root(leaves):
    """MTH of RFC 6962 §2.1, read aloud."""
    if not leaves:
        return sha(b"")
    if len(leaves) == 1:
        return leaves[0]
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return sha(b"\x01", root(leaves[:k]), root(leaves[k:]))


def path(m, leaves):
    if len(leaves) == 1:
        return []
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    if m < k:
        return path(m, leaves[:k]) + [root(leaves[k:])]
    return path(m - k, leaves[k:]) + [root(leaves[:k])]


def subproof(m, leaves, whole):
    if m == len(leaves):
        return [] if whole else [root(leaves)]
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    if m <= k:
        return subproof(m, leaves[:k], whole) + [root(leaves[k:])]
    return subproof(m - k, leaves[k:], False) + [root(leaves[:k])]


def write(name, value):
    (HERE / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def log():
    chain, leaves, rows = sha(b"stead/chain/v1\n", LOG.encode()), [], []
    genesis = chain
    for e in events():
        canonical, hashed = leaf(e)
        leaves.append(hashed)
        chain = sha(chain, hashed)
        row = dict(e, event_id=e["event_id"].hex(), salt=e["salt"].hex())
        rows.append(dict(row, canonical=canonical.hex(), leaf=hashed.hex(), chain=chain.hex(), root=root(leaves).hex()))
    write("log.json", dict(log_id=LOG, genesis=genesis.hex(), events=rows))
    return leaves


def tree(leaves):
    sizes = range(1, len(leaves) + 1)
    write(
        "tree.json",
        dict(
            empty=root([]).hex(),
            inclusion=[
                dict(index=i, size=n, proof=[h.hex() for h in path(i, leaves[:n])]) for n in sizes for i in range(n)
            ],
            consistency=[
                dict(old=m, new=n, proof=[h.hex() for h in subproof(m, leaves[:n], True)])
                for n in sizes
                for m in range(1, n + 1)
            ],
        ),
    )


def signed(leaves):
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    origin = f"stead/{LOG}"
    body = f"{origin}\n12\n{base64.b64encode(root(leaves)).decode()}\nepoch 3\n"
    signature = sha(origin.encode(), b"\n\x01", public)[:4] + key.sign(body.encode())
    note = f"{body}\n— {origin} {base64.b64encode(signature).decode()}\n"
    kind, payload = "application/vnd.stead.manifest.v1+json", b'{"job":"job_1"}'
    pae = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
    envelope = dict(
        payload=base64.b64encode(payload).decode(),
        payloadType=kind,
        signatures=[dict(keyid=sha(public).hex(), sig=base64.b64encode(key.sign(pae)).decode())],
    )
    file, summary, manifest, tool = sha(b"plan file"), b'{"add":1,"noop":false}', sha(b"manifest"), "terraform 1.9.8"
    plan = sha(b"stead/plan/v1\n", file, sha(summary), manifest, struct.pack(">I", len(tool)), tool.encode())
    write(
        "signed.json",
        dict(
            seed=bytes(range(32)).hex(),
            public=public.hex(),
            checkpoint=note,
            envelope=envelope,
            plan=dict(file=file.hex(), summary=dict(noop=False, add=1), manifest=manifest.hex(), tool=tool, digest=plan.hex()),
        ),
    )


def plan_v2():
    """Plan digests of version 2, with and without the optional parts."""
    file, manifest, key = sha(b"plan file"), sha(b"manifest"), sha(b"install key")
    summary, tool = b'{"add":1,"noop":false}', "terraform 1.9.8"
    content = '{"resources":[{"action":"create","address":"a.b"}]}'
    salt = sha(b"stead/plan-salt/v1\n", file, key)
    details = sha(b"stead/plan-details/v1\n", salt, content.encode())
    rows = []
    for parts in [(details, sha(b"plugin"), sha(b"tool")), (details, None, None), (None, sha(b"plugin"), None), (None, None, None)]:
        optional = b"".join(b"\x00" if part is None else b"\x01" + part for part in parts)
        head = (b"stead/plan/v2\n", file, sha(summary), manifest, optional)
        digest = sha(*head, struct.pack(">I", len(tool)), tool.encode())
        names = [None if part is None else part.hex() for part in parts]
        rows.append(dict(details=names[0], plugin=names[1], tool=names[2], digest=digest.hex()))
    write(
        "plan_v2.json",
        dict(
            file=file.hex(),
            summary=sha(summary).hex(),
            manifest=manifest.hex(),
            tool=tool,
            key=key.hex(),
            salt=salt.hex(),
            content=content,
            details=details.hex(),
            plans=rows,
        ),
    )


def journal():
    name, rows = "01ARZ3NDEKTSV4RRFFQ69G5FAV", []
    entries = [
        '{"at":"2026-11-21T12:00:00.000000Z","entry":"opened","journal_id":"01ARZ3NDEKTSV4RRFFQ69G5FAV","n":1}',
        '{"at":"2026-11-21T12:00:01.000000Z","entry":"disabled","reason":"Feiertag, für alle","n":2}',
        '{"at":"2026-11-21T12:00:02.000000Z","entry":"enabled","n":3}',
    ]
    chain = genesis = sha(b"stead/journal/v1\n", name.encode())
    for entry in entries:
        chain = sha(b"stead/journal/entry/v1\n", chain, entry.encode())
        rows.append(dict(entry=entry, chain=chain.hex(), line=f'{entry[:-1]},"chain":"{chain.hex()}"}}'))
    write("journal.json", dict(journal_id=name, genesis=genesis.hex(), entries=rows))


if __name__ == "__main__":
    journal()
    plan_v2()
    made = log()
    tree(made)
    signed(made)
