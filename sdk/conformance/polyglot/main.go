// Command polyglot is the Go worker of the polyglot run, see sdk/conformance/README.md. It runs the
// first step, reserve, and the last, confirm, which compares the results of the other languages.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math/big"
	random "math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unicode/utf8"

	"tasker.example/tasker/client"
	"tasker.example/tasker/worker"
)

// Order is the context of a task, and the result of reserve.
type Order struct {
	Item     string  `json:"item"`
	Quantity int64   `json:"quantity"`
	Price    string  `json:"price"`  // a decimal number
	Rate     float64 `json:"rate"`   // not exact in binary
	Serial   string  `json:"serial"` // beyond 2^53
	Count    int64   `json:"count"`  // beyond 2^53: Go and Python only
}

// Execution identifies one run of a handler.
type Execution struct {
	Attempt int    `json:"attempt"`
	Run     string `json:"run"`
}

// Charge is the result of charge, in Python.
type Charge struct {
	Amount string  `json:"amount"`
	Rate   float64 `json:"rate"`
	Count  int64   `json:"count"`
}

// Label is the result of label, in TypeScript.
type Label struct {
	Text   string  `json:"text"`
	Length int     `json:"length"`
	Rate   float64 `json:"rate"`
	Serial string  `json:"serial"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "polyglot worker:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	server, err := client.New(os.Getenv("TASKER_URL"))
	if err != nil {
		return err
	}
	w := worker.New(server.Backend(), worker.Options{Name: "go", Namespaces: []string{"polyglot"}, Concurrency: 8})
	worker.Handle(w, "reserve", func(ctx context.Context, s *worker.Step[Order]) (any, error) {
		e, err := execute(ctx, s.Call)
		return struct {
			Order
			Execution
		}{s.Input, e}, err
	})
	worker.Handle(w, "confirm", func(ctx context.Context, s *worker.Step[Order]) (any, error) {
		var charge Charge
		var label Label
		if err := s.Dependency("charge", &charge); err != nil {
			return nil, err
		}
		if err := s.Dependency("label", &label); err != nil {
			return nil, err
		}
		if err := compare(s.Input, charge, label); err != nil {
			return nil, worker.Permanent(err)
		}
		e, err := execute(ctx, s.Call)
		return struct {
			Amount string `json:"amount"`
			Text   string `json:"text"`
			Serial string `json:"serial"`
			Count  int64  `json:"count"`
			Execution
		}{charge.Amount, label.Text, label.Serial, charge.Count, e}, err
	})
	return w.Run(ctx)
}

// compare returns an error if a value has changed on its way through the languages.
func compare(o Order, charge Charge, label Label) error {
	price, ok := new(big.Rat).SetString(o.Price)
	serial, known := new(big.Int).SetString(o.Serial, 10)
	if !ok || !known {
		return fmt.Errorf("the order is not valid: %+v", o)
	}
	amount := price.Mul(price, big.NewRat(o.Quantity, 1)).FloatString(2)
	text := fmt.Sprintf("%d × %s", o.Quantity, o.Item)
	next := serial.Add(serial, big.NewInt(1)).String()
	if want := (Charge{amount, o.Rate * 3, o.Count + 1}); charge != want {
		return fmt.Errorf("charge returned %+v instead of %+v", charge, want)
	}
	if want := (Label{text, utf8.RuneCountInString(text), o.Rate * 3, next}); label != want {
		return fmt.Errorf("label returned %+v instead of %+v", label, want)
	}
	return nil
}

// execute is the side effect: it adds a line to the file of effects, in the middle of some work.
func execute(ctx context.Context, s *worker.Call) (Execution, error) {
	e := Execution{Attempt: s.Attempt, Run: rand.Text()}
	if err := work(ctx, e.Attempt); err != nil {
		return e, err
	}
	line, err := json.Marshal(map[string]any{
		"task": s.TaskUUID, "step": s.Name, "attempt": e.Attempt, "run": e.Run, "language": "go", "pid": os.Getpid(),
	})
	if err != nil {
		return e, err
	}
	f, err := os.OpenFile(os.Getenv("CONFORMANCE_EFFECTS"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return e, err
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil {
		return e, err
	}
	return e, work(ctx, e.Attempt)
}

// work takes up to 40 ms. A repeated attempt takes longer, so that the report of a frozen worker may
// arrive while its step is in progress again.
func work(ctx context.Context, attempt int) error {
	longest := 40
	if attempt > 1 {
		longest = 1500
	}
	select {
	case <-time.After(time.Duration(random.IntN(longest)) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
