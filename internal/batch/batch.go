// Package batch merges concurrent writes. A [Writer] never delays a write to fill a batch: items that
// arrive while all writes are busy form the next batch.
//
// Batches therefore form under load only, and there is no timer. Each write runs in the goroutine of
// one of its callers, so there is nothing to stop. All callers of a batch get the same error; the
// owner of the Writer decides what it means for each of them.
package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Writer writes items in batches that contain the items of concurrent callers. Set its fields
// before the first use.
type Writer[T any] struct {
	// Write stores items. Its context has the values of one caller's context, but not its
	// cancellation, since other callers wait too. Write must return in bounded time.
	Write func(ctx context.Context, items []T) error

	Size func(item T) int // size of an item; nil means 0

	Writers  int // concurrent writes; 0 means 1
	MaxItems int // items of a batch; 0 means 1
	MaxSize  int // size of a batch with several items

	mu      sync.Mutex
	busy    int        // current writes
	waiting []*call[T] // in order of arrival
}

// call is an item whose caller waits for its result.
type call[T any] struct {
	item  T
	ready chan batchTurn[T] // receives one value when the item is in a batch
}

// batchTurn wakes a waiting call. If batch is set, the caller must write it; otherwise err is the
// result of the batch that contained the caller's item.
type batchTurn[T any] struct {
	batch []*call[T]
	err   error
}

// ErrPanicked is returned to the other callers of a batch if Write panics.
var ErrPanicked = errors.New("batch write panicked")

// Do writes an item. It reports whether the item was part of a write, whose result is err. It
// returns false if ctx ends before the write begins; it always waits for a write in progress.
func (w *Writer[T]) Do(ctx context.Context, item T) (written bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	c := &call[T]{item: item, ready: make(chan batchTurn[T], 1)}
	if w.tryStart(c) {
		return true, w.write(ctx, []*call[T]{c})
	}
	var mine batchTurn[T]
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

// Waiting returns the number of waiting calls.
func (w *Writer[T]) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting)
}

// tryStart reports whether the caller must write c now. Otherwise c is added to the waiting calls.
func (w *Writer[T]) tryStart(c *call[T]) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy < max(w.Writers, 1) {
		w.busy++
		return true
	}
	w.waiting = append(w.waiting, c)
	return false
}

// withdraw removes a waiting call. It returns false if the call is already part of a batch.
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

// write writes a batch that begins with the caller's item. Then the first waiting caller writes the
// next batch.
func (w *Writer[T]) write(ctx context.Context, batch []*call[T]) error {
	items := make([]T, len(batch))
	for i, c := range batch {
		items[i] = c.item
	}
	err := ErrPanicked
	defer func() {
		if next := w.nextBatch(); next != nil {
			next[0].ready <- batchTurn[T]{batch: next}
		}
		for _, c := range batch[1:] {
			c.ready <- batchTurn[T]{err: err}
		}
	}()
	err = w.Write(context.WithoutCancel(ctx), items)
	return err
}

// nextBatch removes and returns the next batch. If no call waits, it returns nil and ends the
// current write.
func (w *Writer[T]) nextBatch() []*call[T] {
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
