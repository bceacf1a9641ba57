package demo

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"sync"

	"tasker.example/tasker"
	"tasker.example/tasker/worker"
)

// A Fault makes a handler fail. The zero Fault does nothing.
type Fault struct {
	Every     int    `json:"every"`           // affects orders whose number it divides; 0 affects none
	Calls     int    `json:"calls,omitempty"` // failing calls per order; 0 means all
	Permanent bool   `json:"permanent,omitempty"`
	Type      string `json:"type"` // of the error
	Message   string `json:"message"`
}

// Faults contains the active faults. It is safe for concurrent use.
type Faults struct {
	mu    sync.Mutex
	on    map[string]Fault
	calls map[call]int
}

// call identifies the calls that are counted for [Fault.Calls].
type call struct {
	handler string
	task    tasker.ID
}

// GatewayTimeout returns the initial fault of the demo: for every fourth order the payment gateway
// does not answer, until all attempts of the step are used up. A retry by an operator succeeds.
func GatewayTimeout() Fault {
	return Fault{Every: 4, Calls: 3, Type: "gateway_timeout", Message: "payment gateway timeout: no answer within 5 seconds"}
}

// NewFaults returns the initial faults of the demo, with [GatewayTimeout].
func NewFaults() *Faults {
	return &Faults{on: map[string]Fault{ChargeCard: GatewayTimeout()}, calls: map[call]int{}}
}

// Set sets a fault; the zero Fault clears it. It returns NotFound for an unknown handler.
func (f *Faults) Set(handler string, fault Fault) error {
	if err := f.check(handler); err != nil {
		return err
	}
	if fault.Every < 0 || fault.Calls < 0 {
		return tasker.Errorf(tasker.Invalid, "every and calls must not be negative")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.calls)
	delete(f.on, handler)
	if fault.Every > 0 {
		f.on[handler] = fault
	}
	return nil
}

// Clear removes all faults.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.on)
	clear(f.calls)
}

// List returns the active faults by handler.
func (f *Faults) List() map[string]Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.on)
}

func (f *Faults) check(handler string) error {
	switch handler {
	case ValidateOrder, ReserveStock, ChargeCard, ShipOrder, NotifyCustomer:
		return nil
	}
	return tasker.Errorf(tasker.NotFound, "unknown demo handler %q: must be one of %s, %s, %s, %s and %s",
		handler, ValidateOrder, ReserveStock, ChargeCard, ShipOrder, NotifyCustomer)
}

// injectFault returns the simulated error for a call of a handler, or nil. Errors that the order
// itself requests take precedence over faults.
func (f *Faults) injectFault(handler string, s *worker.Step[Order]) error {
	if kind := s.Input.Simulate[handler]; kind != "" {
		return worker.Permanent(&worker.Error{Type: kind, Err: fmt.Errorf("simulated by the order: %s", kind)})
	}
	fault, hit := f.matchFault(handler, s)
	if !hit {
		return nil
	}
	return &worker.Error{
		Type: fault.Type, Permanent: fault.Permanent, Err: errors.New(cmp.Or(fault.Message, "simulated fault")),
		Context: map[string]any{"order_number": s.Input.Number, "simulated": true},
	}
}

// maxCounted limits the memory for counts. They are reset when it is exceeded.
const maxCounted = 10_000

func (f *Faults) matchFault(handler string, s *worker.Step[Order]) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fault, ok := f.on[handler]
	if !ok || s.Input.Number%fault.Every != 0 {
		return Fault{}, false
	}
	if fault.Calls == 0 {
		return fault, true
	}
	if len(f.calls) >= maxCounted {
		clear(f.calls)
	}
	c := call{handler, s.TaskUUID}
	f.calls[c]++
	return fault, f.calls[c] <= fault.Calls
}
