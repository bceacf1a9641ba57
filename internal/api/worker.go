package api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/postgres"
)

// maxWait is how long a claim may wait for work.
const maxWait = time.Minute

func (s *server) listWorkers(x *request) error {
	list, more, err := s.db.Workers(x.ctx, x.int("limit"), x.int("offset"))
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.WorkerList{Workers: convert(list, apiv1.FromWorker), Pagination: x.pageOf(len(list), more)})
}

func (s *server) registerWorker(x *request) error {
	var req apiv1.RegisterWorker
	if err := x.read(&req); err != nil {
		return err
	}
	for _, namespace := range req.Namespaces {
		if err := x.mayUse(namespace); err != nil {
			return err
		}
	}
	r, err := s.engine.RegisterWorker(x.ctx, tasker.WorkerSpec{
		Name: req.Name, Namespaces: req.Namespaces, Handlers: req.Handlers, Version: req.Version, MaxConcurrency: req.MaxConcurrency,
	})
	if err != nil {
		return err
	}
	return x.answer(http.StatusCreated, apiv1.RegisteredWorker{
		WorkerUUID: r.WorkerUUID.String(), HeartbeatIntervalMS: r.HeartbeatInterval.Milliseconds(), LeaseMS: r.LeaseDuration.Milliseconds(),
		ClaimIsHeartbeat: r.ClaimIsHeartbeat,
		Dispatch:         apiv1.FromDispatch(r.Dispatch),
	})
}

func (s *server) claimSteps(x *request) error {
	worker, err := x.id("worker_uuid")
	if err != nil {
		return err
	}
	var req apiv1.ClaimSteps
	if err := x.read(&req); err != nil {
		return err
	}
	key, err := s.leases.key(x.ctx) // without it nothing can be handed out
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	steps, err := s.engine.Claim(ctx, worker, req.Max, time.Duration(req.WaitMS)*time.Millisecond)
	if err != nil && s.stopping.Err() != nil && x.ctx.Err() == nil && tasker.CodeOf(err) == tasker.Internal {
		err = nil // the worker asks again, and another server answers
	}
	if err != nil {
		return err
	}
	x.quietly = len(steps) == 0
	return s.answerSteps(x, key, worker, steps)
}

// answerSteps answers with the steps, if somebody is there to receive them.
func (s *server) answerSteps(x *request, key *leaseKey, worker tasker.ID, steps []tasker.Assignment) error {
	if len(steps) > 0 && x.r.Context().Err() != nil {
		return s.giveBack(x, worker, steps)
	}
	err := x.answer(http.StatusOK, apiv1.ClaimedSteps{Steps: claimedSteps(key, worker, steps)})
	if errors.Is(err, errNoRoom) {
		return errors.Join(s.giveBack(x, worker, steps), err)
	}
	return err
}

func (s *server) takeSteps(x *request) error {
	worker, err := x.id("worker_uuid")
	if err != nil {
		return err
	}
	var req apiv1.TakeSteps
	if err := x.read(&req); err != nil {
		return err
	}
	refs := make([]tasker.StepRef, len(req.Steps))
	for i, r := range req.Steps {
		if refs[i].TaskUUID, err = parseID(r.TaskUUID); err != nil {
			return err
		}
		if refs[i].StepUUID, err = parseID(r.StepUUID); err != nil {
			return err
		}
	}
	key, err := s.leases.key(x.ctx)
	if err != nil {
		return err
	}
	steps, err := s.engine.TakeSteps(x.ctx, worker, refs)
	if err != nil {
		return err
	}
	return s.answerSteps(x, key, worker, steps)
}

// giveBackTime is for the release of steps whose worker hung up.
const giveBackTime = 5 * time.Second

// giveBack releases what nobody is there to receive, or what there is no room to send.
func (s *server) giveBack(x *request, worker tasker.ID, steps []tasker.Assignment) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), giveBackTime)
	defer cancel()
	leases := convert(steps, tasker.Assignment.Lease)
	if _, _, err := s.engine.Release(ctx, worker, leases); err != nil {
		return fmt.Errorf("give back %d steps that no worker received: %w", len(steps), err)
	}
	return nil
}

func claimedSteps(key *leaseKey, worker tasker.ID, steps []tasker.Assignment) []apiv1.ClaimedStep {
	return convert(steps, func(a tasker.Assignment) apiv1.ClaimedStep {
		out := apiv1.FromAssignment(a)
		out.LeaseToken = key.token(worker, a.Lease())
		return out
	})
}

func (s *server) heartbeat(x *request) error {
	x.ctx = postgres.Use(x.ctx, postgres.Heartbeats)
	worker, leases, err := s.readLeases(x)
	if err != nil {
		return err
	}
	beat, err := s.engine.Heartbeat(x.ctx, worker, leases)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.HeartbeatAnswer{
		Extended: convert(beat.Extended, func(e tasker.LeaseExtension) apiv1.ExtendedLease {
			return apiv1.ExtendedLease{StepUUID: e.StepUUID.String(), LeaseExpiresAt: e.ExpiresAt.UTC()}
		}),
		Lost:  convert(beat.Lost, tasker.ID.String),
		Drain: beat.Drain,
	})
}

func (s *server) drainWorker(x *request) error {
	worker, err := x.id("worker_uuid")
	if err != nil {
		return err
	}
	if err := s.engine.DrainWorker(x.ctx, worker); err != nil {
		return err
	}
	w, err := s.db.WorkerWithHealth(x.ctx, worker)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.FromWorker(w))
}

func (s *server) releaseSteps(x *request) error {
	worker, leases, err := s.readLeases(x)
	if err != nil {
		return err
	}
	released, lost, err := s.engine.Release(x.ctx, worker, leases)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.Released{Released: convert(released, tasker.ID.String), Lost: convert(lost, tasker.ID.String)})
}

func (s *server) saveCheckpoint(x *request) error {
	worker, err := x.id("worker_uuid")
	if err != nil {
		return err
	}
	var req apiv1.SaveCheckpoint
	if err := x.read(&req); err != nil {
		return err
	}
	key, err := s.leases.key(x.ctx)
	if err != nil {
		return err
	}
	step, err := parseID(req.StepUUID)
	if err != nil {
		return err
	}
	held, err := key.parseLease(worker, step, req.LeaseToken)
	if err != nil {
		return err
	}
	leases, err := s.leases.verified(x.ctx, []heldLease{held})
	if err != nil {
		return err
	}
	if err := s.engine.SaveCheckpoint(x.ctx, worker, leases[0], req.Checkpoint); err != nil {
		return err
	}
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}

// readLeases returns the worker of the path and the leases of the body.
func (s *server) readLeases(x *request) (tasker.ID, []tasker.Lease, error) {
	worker, err := x.id("worker_uuid")
	if err != nil {
		return worker, nil, err
	}
	var req apiv1.Leases
	if err := x.read(&req); err != nil {
		return worker, nil, err
	}
	key, err := s.leases.key(x.ctx)
	if err != nil {
		return worker, nil, err
	}
	var faults []tasker.Fault
	held := make([]heldLease, len(req.Leases))
	for i, l := range req.Leases {
		step, err := parseID(l.StepUUID)
		if err == nil {
			held[i], err = key.parseLease(worker, step, l.LeaseToken)
		}
		if err != nil {
			faults = append(faults, tasker.Fault{Path: fmt.Sprintf("leases[%d]", i), Message: err.Error()})
		}
	}
	if len(faults) > 0 {
		return worker, nil, invalidBody(faults[:min(len(faults), maxFaults)])
	}
	leases, err := s.leases.verified(x.ctx, held)
	return worker, leases, err
}

func (s *server) leave(x *request) error {
	worker, err := x.id("worker_uuid")
	if err != nil {
		return err
	}
	if err := s.engine.LeaveWorker(x.ctx, worker); err != nil {
		return err
	}
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}

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
	k, err := t.db.LeaseKey(postgres.Use(ctx, postgres.Heartbeats)) // one of them may need it
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
