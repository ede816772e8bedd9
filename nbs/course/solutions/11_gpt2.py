import math


def adam(w, gradient, state):
    n, m, v = state.get('n', 0) + 1, state.get('m', 0.), state.get('v', 0.)
    m, v = .9 * m + .1 * gradient, .99 * v + .01 * gradient ** 2
    w -= .1 * (m / (1 - .9 ** n)) / (math.sqrt(v / (1 - .99 ** n)) + 1e-8)
    return w, dict(n=n, m=m, v=v)
