package api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
)

// A lease token contains the task and the fencing token of a lease, and a 128-bit MAC over these, the
// step and the worker. It cannot be forged or used by another worker. It is opaque to workers.
const (
	leaseBytes = 16 + 8
	macBytes   = 16
)

// loadLeaseKey signs lease tokens. All servers of a database share it.
type leaseKey []byte

// loadLeaseKey returns the key of the database, which it caches.
func (s *server) loadLeaseKey(ctx context.Context) (leaseKey, error) {
	if k := s.lease.Load(); k != nil {
		return *k, nil
	}
	secret, err := s.db.LeaseKey(postgres.WithConnClass(ctx, postgres.Heartbeats)) // heartbeats need it
	if err != nil {
		return nil, err
	}
	k := leaseKey(secret)
	s.lease.Store(&k)
	return k, nil
}

func (k leaseKey) signToken(worker tasker.ID, l tasker.Lease) string {
	b := make([]byte, leaseBytes, leaseBytes+macBytes)
	copy(b, l.TaskUUID[:])
	binary.BigEndian.PutUint64(b[16:], uint64(l.Fence))
	return base64.RawURLEncoding.EncodeToString(append(b, k.computeMAC(worker, l)...))
}

func (k leaseKey) computeMAC(worker tasker.ID, l tasker.Lease) []byte {
	h := hmac.New(sha256.New, k)
	h.Write(worker[:])
	h.Write(l.TaskUUID[:])
	h.Write(l.StepUUID[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(l.Fence)))
	return h.Sum(nil)[:macBytes]
}

// parseToken decodes the token that a worker sent for a step, or returns an Invalid error. If the signature
// is wrong, the lease has [tasker.NoFence] and is rejected wherever it is used.
func (k leaseKey) parseToken(worker, step tasker.ID, token string) (tasker.Lease, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) != leaseBytes+macBytes {
		return tasker.Lease{}, tasker.Errorf(tasker.Invalid, "invalid lease_token of step %s: send the token that the claim returned", step)
	}
	l := tasker.Lease{StepUUID: step, Fence: int64(binary.BigEndian.Uint64(b[16:]))}
	copy(l.TaskUUID[:], b)
	if l.Fence < 0 || !hmac.Equal(k.computeMAC(worker, l), b[leaseBytes:]) {
		l.Fence = tasker.NoFence
	}
	return l, nil
}
