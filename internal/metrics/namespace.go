package metrics

import (
	"slices"
	"sync"
)

const (
	// OtherNamespaces is the label of namespaces that have no series of their own. Templates
	// cannot use it.
	OtherNamespaces = "(other)"
	// maxNamespaces limits the namespaces that have counter series of their own: the first ones to
	// be counted. Up to half of these series are created in advance with the value 0.
	maxNamespaces = 200
	maxBegun      = maxNamespaces / 2
	// maxGauges limits the namespaces that have gauge series of their own: those with the greatest
	// need.
	maxGauges = 100
)

// nameSet is the set of namespaces that have series of their own. Moving a counter to another
// series would show a wrong rate, so a namespace stays in the set until the process ends. The zero
// value is empty.
type nameSet struct {
	mu    sync.RWMutex
	names map[string]bool
	order []string
}

// labelFor returns the namespace, or [OtherNamespaces] if it has no series of its own.
func (s *nameSet) labelFor(namespace string) string {
	s.mu.RLock()
	known := s.names[namespace]
	s.mu.RUnlock()
	if known || s.add(namespace) {
		return namespace
	}
	return OtherNamespaces
}

// add adds a namespace unless the set is full. It reports whether the set contains it.
func (s *nameSet) add(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names[namespace] {
		return true
	}
	if len(s.names) >= maxNamespaces || namespace == OtherNamespaces {
		return false
	}
	if s.names == nil {
		s.names = map[string]bool{}
	}
	s.names[namespace] = true
	s.order = append(s.order, namespace)
	return true
}

// list returns the namespaces in the order in which they were added.
func (s *nameSet) list() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clip(s.order)
}
