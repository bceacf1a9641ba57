package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
)

// checkpointCache is the latest checkpoint that this attempt saved.
type checkpointCache struct {
	mu    sync.Mutex
	value json.RawMessage // nil if nothing was saved: use the checkpoint of the assignment
}

// LastCheckpoint decodes the latest checkpoint of this or an earlier attempt into into and reports
// whether there is one. If there is none, into is unchanged. Errors are permanent.
func (c *Call) LastCheckpoint(into any) (bool, error) {
	c.saved.mu.Lock()
	value := c.saved.value
	c.saved.mu.Unlock()
	if value == nil {
		value = c.Checkpoint
	}
	if len(value) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(value, into); err != nil {
		return false, newInvalidInputError("checkpoint of step %s: %w", c.Name, err)
	}
	return true, nil
}

// SaveCheckpoint stores a value, as JSON of at most [tasker.MaxCheckpointBytes], for later
// attempts of the step. It replaces the previous checkpoint and is stored when SaveCheckpoint
// returns nil. Each call is a request: save after a batch, not after each row.
//
// An error of type [InvalidCheckpoint] is permanent: the value cannot be stored. Any other error
// means that the lease is lost or that the backend is unreachable; the handler may continue or
// return it.
func (c *Call) SaveCheckpoint(ctx context.Context, v any) error {
	value, err := encode(v)
	if err != nil {
		return &Error{Type: InvalidCheckpoint, Permanent: true, Err: fmt.Errorf("checkpoint of step %s: %w", c.Name, err)}
	}
	if size, err := payload.Measure(value, payload.Limits{}); err != nil || size > tasker.MaxCheckpointBytes {
		err = cmp.Or(err, fmt.Errorf("has %d bytes; the limit is %d", size, tasker.MaxCheckpointBytes))
		return &Error{Type: InvalidCheckpoint, Permanent: true, Err: fmt.Errorf("checkpoint of step %s: %w", c.Name, err)}
	}
	if err := c.store(ctx, value); err != nil {
		return err
	}
	c.saved.mu.Lock()
	defer c.saved.mu.Unlock()
	c.saved.value = value
	return nil
}

// store sends a checkpoint and retries while the backend is unreachable.
func (c *Call) store(ctx context.Context, value json.RawMessage) error {
	if c.save == nil {
		if save, ok := ctx.Value(checkpointsKey{}).(func(json.RawMessage) error); ok {
			return save(value)
		}
		return nil
	}
	var b backoff
	for try := 1; ; try++ {
		err := c.save(ctx, value)
		switch code := tasker.CodeOf(err); {
		case err == nil:
			return nil
		case code == tasker.Invalid || code == tasker.TooLarge:
			return &Error{Type: InvalidCheckpoint, Permanent: true, Err: fmt.Errorf("checkpoint of step %s: %w", c.Name, err)}
		case ctx.Err() != nil || code == tasker.StaleLease || try == maxFetchAttempts || !b.sleep(ctx, err):
			return fmt.Errorf("save a checkpoint of step %s: %w", c.Name, err)
		}
		c.Log.WarnContext(ctx, "cannot save a checkpoint, retrying", "err", err)
	}
}

type checkpointsKey struct{}

// WithCheckpoints makes a handler run by [Worker.Execute] pass its checkpoints to save. It is
// meant for packages workertest and taskertest.
func WithCheckpoints(ctx context.Context, save func(value json.RawMessage) error) context.Context {
	return context.WithValue(ctx, checkpointsKey{}, save)
}
