def commit():
    return ['compute', 'sum', 'apply', 'wait', 'report']


def copies(steps):
    newest, rounds = max(steps.values()), []
    have = [w for w in steps if steps[w] == newest]
    missing = [w for w in steps if steps[w] < newest]
    while missing:
        pairs = [*zip(have, missing)]
        rounds.append(pairs)
        have += [w for _, w in pairs]
        missing = missing[len(pairs):]
    return rounds
