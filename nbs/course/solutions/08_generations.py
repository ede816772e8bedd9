def claim(store, number, members):
    if store.add(f'claims/{number}', 1) == 1: store.set(f'generation/{number}', members)
    return store.get(f'generation/{number}')
