package metrics

import (
	"slices"
	"sync"
)

const (
	// OtherNamespaces is the namespace of what is counted of those that have no series
	// of their own. No template can have it.
	OtherNamespaces = "(other)"
	// maxNamespaces bounds the namespaces whose counters have series of their own: those in
	// which something was counted first. Half of them may be begun at 0 before that.
	maxNamespaces = 200
	maxBegun      = maxNamespaces / 2
	// maxGauges bounds the namespaces whose gauges are shown, because they need it most.
	maxGauges = 100
)

// A nameSet is the namespaces that have series of their own. A counter that was read once
// cannot move to another series without showing a rate that never was, so a namespace that
// is in the set stays there as long as the process runs. The zero set is empty.
type nameSet struct {
	mu    sync.RWMutex
	names map[string]bool
	order []string
}

// label returns the value under which a namespace is counted.
func (s *nameSet) label(namespace string) string {
	s.mu.RLock()
	known := s.names[namespace]
	s.mu.RUnlock()
	if known || s.add(namespace) {
		return namespace
	}
	return OtherNamespaces
}

// add puts a namespace into the set unless that is full, and reports whether it is there.
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

// list returns the namespaces of the set, the first that came first.
func (s *nameSet) list() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clip(s.order)
}
