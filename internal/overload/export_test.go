package overload

// Remembered returns how many a rate remembers.
func Remembered(r *Rate) int { return len(r.recent) + len(r.older) }
