// Package demo is the sample shop of tasker dev --demo: a template, its handlers, an order
// generator and switchable faults. Its behavior depends only on the order number, so runs are
// reproducible.
package demo

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/templatefile"
)

// Names of the demo's template.
const (
	Namespace    = "orders"
	TemplateName = "order_fulfillment"
)

// Source is the template file.
//
//go:embed order_fulfillment.yaml
var Source string

// LoadTemplate returns the parsed [Source].
func LoadTemplate() (tasker.Template, error) {
	t, _, err := templatefile.Parse([]byte(Source))
	if err != nil {
		return tasker.Template{}, fmt.Errorf("parse demo template: %w", err)
	}
	return t, nil
}

// FirstOrder is the number of the first order that [Generate] submits.
const FirstOrder = 1001

// Generate submits an order at intervals until count orders are submitted or ctx ends. If count is
// 0, there is no limit. It resubmits an order that is temporarily refused, and returns any other
// error of submit.
func Generate(
	ctx context.Context, submit func(context.Context, tasker.NewTask) (tasker.ID, error), every time.Duration, count int,
) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for n := 0; count == 0 || n < count; {
		_, err := submit(ctx, NewTask(NewOrder(FirstOrder+n)))
		switch {
		case err == nil:
			n++
		case ctx.Err() != nil:
			return nil
		case tasker.CodeOf(err) != tasker.Unavailable:
			return fmt.Errorf("submit order %d: %w", FirstOrder+n, err)
		}
		if count > 0 && n == count {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
	return nil
}

// NewOrder returns the order with this number. The same number always yields the same order.
func NewOrder(number int) Order {
	goods := []Item{
		{SKU: "tea-green", Quantity: 2, PriceCents: 650},
		{SKU: "pot-iron", Quantity: 1, PriceCents: 7900},
		{SKU: "cup-glass", Quantity: 4, PriceCents: 480},
	}
	first := number % len(goods)
	return Order{
		Number: number,
		Customer: Customer{
			Name: fmt.Sprintf("Customer %d", number), Email: fmt.Sprintf("customer-%d@example.com", number),
		},
		Items: append(goods[first:len(goods):len(goods)], goods[:number%2]...),
	}
}

// NewTask returns the request to fulfill an order.
func NewTask(o Order) tasker.NewTask {
	doc, err := json.Marshal(o)
	if err != nil {
		panic(fmt.Sprintf("demo: an order cannot be encoded: %v", err)) // impossible for numbers and strings
	}
	return tasker.NewTask{
		Namespace: Namespace, Name: TemplateName, Context: doc,
		Initiator: "demo", SourceSystem: "web_shop", Reason: fmt.Sprintf("order %d", o.Number),
		Tags: []string{"demo", fmt.Sprintf("order-%d", o.Number)},
	}
}
