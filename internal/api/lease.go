package api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
)

// A lease token is the task and the fence of a lease and 128 bits of a MAC over
// these, the step and the worker: it can be neither guessed nor computed, and is
// of use to no other worker. To a worker it is opaque. Tokens of earlier versions
// have no MAC; see [leaseTokens].
const (
	leaseBytes = 16 + 8
	macBytes   = 16
)

// signingMargin is how long before its time the key is used: a lease that is
// claimed just before that time may be answered just after it.
const signingMargin = time.Minute

// leaseTokens encodes and decodes the tokens of leases, with the key of the database.
//
// While a fleet is upgraded, servers and workers of earlier versions know only
// tokens without a MAC. Until the key's time they are given out and taken; later
// they are taken only of leases that were claimed before.
type leaseTokens struct {
	db *postgres.DB

	mu   sync.Mutex
	read *leaseKey
}

// A leaseKey is the key as it was read.
type leaseKey struct {
	secret   []byte
	usedFrom time.Time // by the database's clock
	signs    time.Time // by ours: when to begin to sign
}

// key returns the key, which is read once.
func (t *leaseTokens) key(ctx context.Context) (*leaseKey, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.read != nil {
		return t.read, nil
	}
	k, err := t.db.LeaseKey(ctx)
	if err != nil {
		return nil, err
	}
	t.read = &leaseKey{secret: k.Secret, usedFrom: k.UsedFrom, signs: time.Now().Add(k.In - signingMargin)}
	return t.read, nil
}

// token returns the token of a lease that was given to a worker.
func (k *leaseKey) token(worker tasker.ID, l tasker.Lease) string {
	var b [leaseBytes]byte
	copy(b[:16], l.TaskUUID[:])
	binary.BigEndian.PutUint64(b[16:], uint64(l.Fence))
	if time.Now().Before(k.signs) {
		return base64.RawURLEncoding.EncodeToString(b[:])
	}
	return base64.RawURLEncoding.EncodeToString(append(b[:], k.mac(worker, l)...))
}

func (k *leaseKey) mac(worker tasker.ID, l tasker.Lease) []byte {
	var fence [8]byte
	binary.BigEndian.PutUint64(fence[:], uint64(l.Fence))
	h := hmac.New(sha256.New, k.secret)
	h.Write(worker[:])
	h.Write(l.TaskUUID[:])
	h.Write(l.StepUUID[:])
	h.Write(fence[:])
	return h.Sum(nil)[:macBytes]
}

// A heldLease is a lease as its token names it.
type heldLease struct {
	tasker.Lease
	signed bool
}

// parseLease reads the token that a worker has sent for a step. One that is not
// this worker's is a lease that nobody has: it is lost wherever it is named. The
// error is Invalid.
func (k *leaseKey) parseLease(worker, step tasker.ID, token string) (heldLease, error) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) != leaseBytes && len(b) != leaseBytes+macBytes {
		return heldLease{}, tasker.Errorf(tasker.Invalid, "lease_token of step %s is not one that a claim gave out", step)
	}
	l := heldLease{Lease: tasker.Lease{StepUUID: step, Fence: int64(binary.BigEndian.Uint64(b[16:]))}, signed: len(b) > leaseBytes}
	copy(l.TaskUUID[:], b)
	if l.Fence < 0 || l.signed && !hmac.Equal(k.mac(worker, l.Lease), b[leaseBytes:]) {
		l.Fence, l.signed = tasker.NoFence, true
	}
	return l, nil
}

// verified returns the leases, with those lost whose token has no MAC though it
// should have one.
func (t *leaseTokens) verified(ctx context.Context, held []heldLease) ([]tasker.Lease, error) {
	leases := make([]tasker.Lease, len(held))
	var unsigned []tasker.Lease
	for i, h := range held {
		leases[i] = h.Lease
		if !h.signed {
			unsigned = append(unsigned, h.Lease)
		}
	}
	if len(unsigned) == 0 {
		return leases, nil
	}
	key, err := t.key(ctx)
	if err != nil {
		return nil, err
	}
	before, err := t.db.ClaimedBefore(ctx, key.usedFrom, unsigned)
	if err != nil {
		return nil, err
	}
	for i, h := range held {
		if !h.signed && !before[h.StepUUID] {
			leases[i].Fence = tasker.NoFence
		}
	}
	return leases, nil
}
