package tasker

import (
	"time"
	"unicode/utf8"
)

// NamespaceWeight is the relative share of a namespace in claims from several namespaces. The
// default is 1.
type NamespaceWeight struct {
	Namespace string    `json:"namespace"`
	Weight    float64   `json:"weight" doc:"Relative share in claims from several namespaces: with 3 it gets three steps for each step of a namespace with 1."`
	SetBy     string    `json:"set_by"`
	SetAt     time.Time `json:"set_at"`
}

// Range of a weight.
const (
	LeastNamespaceWeight = 0.01
	MostNamespaceWeight  = 1000
)

// Check returns an Invalid error if the name or the weight is invalid.
func (w NamespaceWeight) Check() error {
	if w.Namespace == "" || utf8.RuneCountInString(w.Namespace) > 128 {
		return Errorf(Invalid, "invalid namespace %q: must be 1 to 128 characters long", w.Namespace)
	}
	if !(w.Weight >= LeastNamespaceWeight && w.Weight <= MostNamespaceWeight) { // also rejects NaN
		return Errorf(Invalid, "invalid weight %v: must be a number from %v to %v", w.Weight, LeastNamespaceWeight, float64(MostNamespaceWeight))
	}
	return nil
}
