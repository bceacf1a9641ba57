package tasker

import (
	"time"
	"unicode/utf8"
)

// A NamespaceWeight is the share of a namespace in claims of several namespaces. The others,
// which have none, have the weight 1.
type NamespaceWeight struct {
	Namespace string
	Weight    float64
	SetBy     string
	SetAt     time.Time
}

// The bounds of a weight.
const (
	LeastNamespaceWeight = 0.01
	MostNamespaceWeight  = 1000
)

// Check returns an Invalid error if the weight cannot be set.
func (w NamespaceWeight) Check() error {
	if w.Namespace == "" || utf8.RuneCountInString(w.Namespace) > 128 {
		return Errorf(Invalid, "invalid namespace %q: must have 1 to 128 characters", w.Namespace)
	}
	if !(w.Weight >= LeastNamespaceWeight && w.Weight <= MostNamespaceWeight) { // NaN is refused as well
		return Errorf(Invalid, "invalid weight %v: must be a number from %v to %v", w.Weight, LeastNamespaceWeight, float64(MostNamespaceWeight))
	}
	return nil
}
