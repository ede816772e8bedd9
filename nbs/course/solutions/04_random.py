import hashlib


def place(seed, step, micro):
    text = f'{seed}/{step}/{micro}'.encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), 'little')
