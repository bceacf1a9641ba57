package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tasker.example/tasker/worker"
)

// Names of the handlers and of their steps.
const (
	ValidateOrder  = "validate_order"
	ReserveStock   = "reserve_stock"
	ChargeCard     = "charge_card"
	ShipOrder      = "ship_order"
	NotifyCustomer = "notify_customer"
)

// settings is the initialization of a handler in the template.
type settings struct {
	WorkMS        int    `json:"work_ms"` // simulated duration
	MaxTotalCents int    `json:"max_total_cents"`
	Warehouse     string `json:"warehouse"`
	Carrier       string `json:"carrier"`
}

type handler[Out any] func(s *worker.Step[Order], set settings) (Out, error)

// Handlers registers the handlers of the demo with a worker.
func Handlers(w *worker.Worker, f *Faults) {
	registerHandler(w, f, ValidateOrder, validateOrder)
	registerHandler(w, f, ReserveStock, reserveStock)
	registerHandler(w, f, ChargeCard, chargeCard)
	registerHandler(w, f, ShipOrder, shipOrder)
	registerHandler(w, f, NotifyCustomer, notifyCustomer)
}

// registerHandler registers a handler that waits for the simulated duration, fails if a fault is
// active for the order, and otherwise calls h.
func registerHandler[Out any](w *worker.Worker, f *Faults, name string, h handler[Out]) {
	worker.Handle(w, name, func(ctx context.Context, s *worker.Step[Order]) (out Out, err error) {
		var set settings
		if err := s.Init(&set); err != nil {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-time.After(time.Duration(set.WorkMS) * time.Millisecond):
		}
		if err := f.injectFault(name, s); err != nil {
			return out, err
		}
		s.Log.DebugContext(ctx, "demo step done", "order_number", s.Input.Number)
		return h(s, set)
	})
}

func validateOrder(s *worker.Step[Order], set settings) (Validated, error) {
	total := s.Input.totalCents()
	if set.MaxTotalCents > 0 && total > set.MaxTotalCents {
		return Validated{}, worker.Permanent(&worker.Error{
			Type:    "order_too_large",
			Context: map[string]int{"total_cents": total, "max_total_cents": set.MaxTotalCents},
			Err: fmt.Errorf("order %d is worth %d cents: orders over %d require approval",
				s.Input.Number, total, set.MaxTotalCents),
		})
	}
	return Validated{Number: s.Input.Number, Valid: true, TotalCents: total}, nil
}

func reserveStock(s *worker.Step[Order], set settings) (Reservation, error) {
	pieces := 0
	for _, i := range s.Input.Items {
		pieces += i.Quantity
	}
	return Reservation{ID: fmt.Sprintf("RES-%06d", s.Input.Number), Warehouse: set.Warehouse, Pieces: pieces}, nil
}

// chargeCard charges the validated total. It computes the total itself if an operator resolved the
// validation without a result.
func chargeCard(s *worker.Step[Order], _ settings) (Payment, error) {
	valid := Validated{TotalCents: s.Input.totalCents()}
	if _, err := readResult(s, ValidateOrder, &valid); err != nil {
		return Payment{}, err
	}
	return Payment{ID: fmt.Sprintf("PAY-%06d", s.Input.Number), AmountCents: valid.TotalCents, Gateway: "demo-gateway"}, nil
}

// shipOrder uses the results of the steps before it, from a worker or an operator. It ships without
// payment or reservation only if an operator resolved that step without a result.
func shipOrder(s *worker.Step[Order], set settings) (Shipment, error) {
	out := Shipment{TrackingNumber: fmt.Sprintf("TRK-%06d", s.Input.Number), Carrier: set.Carrier}
	var reservation Reservation
	var payment Payment
	reserved, err := readResult(s, ReserveStock, &reservation)
	if err != nil {
		return Shipment{}, err
	}
	paid, err := readResult(s, ChargeCard, &payment)
	if err != nil {
		return Shipment{}, err
	}
	out.ReservationID, out.PaymentID = reservation.ID, payment.ID
	switch {
	case !paid:
		out.Note = "shipped unpaid: an operator resolved charge_card without a result"
	case payment.ID == "":
		return Shipment{}, worker.Permanent(errors.New("missing payment_id in the result of charge_card: " +
			"resolve or complete ship_order manually"))
	case !reserved:
		out.Note = "shipped unreserved: an operator resolved reserve_stock without a result"
	}
	return out, nil
}

// readResult decodes the result of a step and reports whether there is one.
func readResult(s *worker.Step[Order], step string, into any) (bool, error) {
	err := s.Dependency(step, into)
	if errors.Is(err, worker.ErrNoResult) {
		return false, nil
	}
	return err == nil, err
}

func notifyCustomer(s *worker.Step[Order], _ settings) (Notice, error) {
	var shipped Shipment
	if _, err := readResult(s, ShipOrder, &shipped); err != nil {
		return Notice{}, err
	}
	text := fmt.Sprintf("Your order %d is on its way", s.Input.Number)
	if shipped.TrackingNumber != "" {
		text += ": " + shipped.Carrier + ", " + shipped.TrackingNumber
	}
	return Notice{To: s.Input.Customer.Email, Text: text + "."}, nil
}
