package metrics

import (
	"slices"
	"sync"
)

const (
	// OtherNamespaces is the label of namespaces without own series. Templates cannot use it.
	OtherNamespaces = "(other)"
	// maxNamespaces limits the namespaces with own counter series. The first ones counted get them;
	// up to half of them are created at 0 in advance.
	maxNamespaces = 200
	maxBegun      = maxNamespaces / 2
	// maxGauges limits the namespaces with own gauge series, which are those with the greatest
	// need.
	maxGauges = 100
)

// nameSet is the set of namespaces with own series. Moving a counter to another series would show
// a wrong rate, so a namespace stays in the set until the process ends. The zero value is empty.
type nameSet struct {
	mu    sync.RWMutex
	names map[string]bool
	order []string
}

// label returns the label of a namespace.
func (s *nameSet) label(namespace string) string {
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
