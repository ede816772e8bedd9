def shares(world, count):
    cuts = [count * rank // world for rank in range(world + 1)]
    return [[*range(a, b)] for a, b in zip(cuts, cuts[1:])]


def tree(lo, hi):
    found = []
    while lo < hi:
        size = 16
        while lo % size or lo + size > hi:
            size //= 2
        found.append((lo, lo + size))
        lo += size
    return found
