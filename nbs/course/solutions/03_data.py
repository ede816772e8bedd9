from elastic_nb.testing.puzzles import shuffled


def order(step, rank, world):
    share = 12 // world
    begin = 12 * step + share * rank
    return [shuffled(40, 0, k // 40)[k % 40] for k in range(begin, begin + share)]
