def fence():
    class Door:
        def __init__(self): self.highest = 0
        def open(self, n): self.highest = max(self.highest, n)
        def write(self, n): return n == self.highest
    return Door()


def blame(seen):
    late = [w for w, (done, silent) in seen.items() if done < 4 and silent > 2]
    return late[0] if late else None
