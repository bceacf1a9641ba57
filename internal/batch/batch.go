// Package batch merges concurrent writes. A [Writer] never delays a write to fill a batch: items that
// arrive while all writes are busy form the next batch.
//
// A write that costs much to begin and little for each item is cheaper for several
// callers together. A [Writer] never waits for a second caller: as long as fewer writes
// are under way than it allows, a call writes its item at once. What arrives while all
// are busy waits, and the next write takes it together. Batches therefore form under
// load only, and nothing here has a timer.
//
// Each write runs in the goroutine of one of the callers whose items it has, so that
// nothing is left to stop when the callers have returned.
//
// The package does not know what is written. All callers of a batch get the same error;
// what it means for each of them is for the owner of the Writer to decide.
package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// A Writer writes items, those of concurrent callers together. Its fields are set before
// it is used.
type Writer[T any] struct {
	// Write stores items. Its context has the values of one caller's and does not end with
	// it: the others wait for the result too. Write must end by itself in bounded time.
	Write func(ctx context.Context, items []T) error

	Size func(item T) int // what an item counts; nil means 0

	Writers  int // writes at once; 0 means 1
	MaxItems int // of a batch; 0 means 1
	MaxSize  int // of a batch of more than one item

	mu      sync.Mutex
	busy    int        // writes under way
	waiting []*call[T] // in the order of their arrival
}

// A call is an item whose caller waits.
type call[T any] struct {
	item  T
	ready chan turn[T] // gets one value when the item has been taken
}

// A turn ends the wait of a call: its caller writes a batch that begins with its item, or
// gets the result of the batch that its item was in.
type turn[T any] struct {
	batch []*call[T]
	err   error
}

// ErrPanicked is what the other callers of a batch get if Write panics.
var ErrPanicked = errors.New("the write of a batch panicked")

// Do writes an item and reports whether it was part of a write, whose result is err. If it
// was not, ctx ended before. An item that is part of a write when ctx ends is waited for.
func (w *Writer[T]) Do(ctx context.Context, item T) (written bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	c := &call[T]{item: item, ready: make(chan turn[T], 1)}
	if w.begin(c) {
		return true, w.write(ctx, []*call[T]{c})
	}
	var mine turn[T]
	select {
	case mine = <-c.ready:
	case <-ctx.Done():
		if w.withdraw(c) {
			return false, ctx.Err()
		}
		mine = <-c.ready
	}
	if mine.batch != nil {
		return true, w.write(ctx, mine.batch)
	}
	return true, mine.err
}

// Waiting returns how many calls wait for their turn.
func (w *Writer[T]) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting)
}

// begin reports whether a call is to be written now. Otherwise it waits for its turn.
func (w *Writer[T]) begin(c *call[T]) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy < max(w.Writers, 1) {
		w.busy++
		return true
	}
	w.waiting = append(w.waiting, c)
	return false
}

// withdraw reports whether a call has been taken out before it had its turn.
func (w *Writer[T]) withdraw(c *call[T]) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := slices.Index(w.waiting, c)
	if at < 0 {
		return false
	}
	w.waiting = slices.Delete(w.waiting, at, at+1)
	return true
}

// write writes a batch, whose first call is the caller's. Whoever waits first writes the
// next one.
func (w *Writer[T]) write(ctx context.Context, batch []*call[T]) error {
	items := make([]T, len(batch))
	for i, c := range batch {
		items[i] = c.item
	}
	err := ErrPanicked
	defer func() {
		if next := w.next(); next != nil {
			next[0].ready <- turn[T]{batch: next}
		}
		for _, c := range batch[1:] {
			c.ready <- turn[T]{err: err}
		}
	}()
	err = w.Write(context.WithoutCancel(ctx), items)
	return err
}

// next takes the calls of the next batch; there is one write less under way if it is nil.
func (w *Writer[T]) next() []*call[T] {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, size := 0, 0
	for ; n < min(len(w.waiting), max(w.MaxItems, 1)); n++ {
		if w.Size != nil {
			size += w.Size(w.waiting[n].item)
		}
		if n > 0 && size > w.MaxSize {
			break
		}
	}
	if n == 0 {
		w.busy--
		return nil
	}
	batch := slices.Clone(w.waiting[:n])
	w.waiting = slices.Delete(w.waiting, 0, n)
	return batch
}
