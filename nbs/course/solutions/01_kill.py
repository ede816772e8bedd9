def limit(pauses):
    return 1.5 * max(pauses)
