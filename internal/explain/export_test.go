package explain

import "tasker.example/tasker"

// TurnsOf returns whose turn it may be while a fact holds, as the documents say.
func TurnsOf(f tasker.ConditionReason) []tasker.NextActor {
	for _, r := range rules {
		if r.fact == f {
			return r.turns
		}
	}
	return nil
}
