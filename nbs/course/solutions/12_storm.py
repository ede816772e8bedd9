def holder(w, workers, per_machine):
    return (w + per_machine) % workers


def staleness(step, newest, running):
    return not running and step - newest >= 7
