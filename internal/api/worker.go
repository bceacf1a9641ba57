package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/postgres"
)

func (s *server) listQueues(x *request, q apiv1.QueueQuery) ([]tasker.Queue, error) {
	return s.db.Queues(x.ctx, q.Namespace, q.Limit)
}

func (s *server) listNamespaces(x *request) (apiv1.NamespaceList, error) {
	list, err := s.db.NamespaceWeights(x.ctx)
	return apiv1.NamespaceList{Namespaces: orEmpty(list)}, err
}

func (s *server) setNamespace(x *request, req apiv1.SetNamespace) (tasker.NamespaceWeight, error) {
	return s.engine.SetNamespaceWeight(x.ctx, x.pathText("namespace"), req.Weight, x.resolveActorOrUnknown(""))
}

func (s *server) deleteNamespace(x *request) (none, error) {
	return none{}, s.engine.DeleteNamespaceWeight(x.ctx, x.pathText("namespace"), x.resolveActorOrUnknown(""))
}

func (s *server) listWorkers(x *request, page apiv1.Page) (apiv1.WorkerList, error) {
	list, more, err := s.db.Workers(x.ctx, page.Limit, page.Offset)
	return apiv1.WorkerList{Workers: orEmpty(list), Pagination: newPagination(page.Limit, page.Offset, len(list), more)}, err
}

func (s *server) registerWorker(x *request, req apiv1.RegisterWorker) (answer apiv1.RegisteredWorker, err error) {
	for _, namespace := range req.Namespaces {
		if err := x.checkNamespace(namespace); err != nil {
			return answer, err
		}
	}
	protocol := cmp.Or(req.Protocol, 1)
	if protocol != apiv1.WorkerProtocol {
		return answer, statusError{http.StatusBadRequest, tasker.Errorf(tasker.Unsupported,
			"unsupported protocol %d: this server supports version %d of the worker protocol; use an SDK version that supports it, or another server version",
			protocol, apiv1.WorkerProtocol).WithDetails(map[string][]int{"supported": {apiv1.WorkerProtocol}})}
	}
	r, err := s.engine.RegisterWorker(x.ctx, tasker.WorkerSpec{
		Name: req.Name, Namespaces: req.Namespaces, Handlers: req.Handlers, Version: req.Version, MaxConcurrency: req.MaxConcurrency,
	})
	return apiv1.RegisteredWorker{
		WorkerUUID: r.WorkerUUID.String(), HeartbeatIntervalMS: r.HeartbeatInterval.Milliseconds(), LeaseMS: r.LeaseDuration.Milliseconds(),
		ClaimIsHeartbeat: r.ClaimIsHeartbeat, Protocol: protocol,
		Dispatch: apiv1.FromDispatch(r.Dispatch),
	}, err
}

func (s *server) claimSteps(x *request) error {
	var req apiv1.ClaimSteps
	if err := x.read(&req); err != nil {
		return err
	}
	worker := x.pathUUID("worker_uuid")
	key, err := s.loadLeaseKey(x.ctx) // fail before steps are claimed
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	steps, err := s.engine.Claim(ctx, worker, req.Max, time.Duration(req.WaitMS)*time.Millisecond)
	if err != nil && s.stopping.Err() != nil && x.ctx.Err() == nil && tasker.CodeOf(err) == tasker.Internal {
		err = nil // the worker retries on another server
	}
	if err != nil {
		return err
	}
	x.quiet = len(steps) == 0
	return s.respondWithSteps(x, key, worker, steps)
}

// respondWithSteps sends claimed steps. It releases them if the client has disconnected or the response
// cannot be sent.
func (s *server) respondWithSteps(x *request, key leaseKey, worker tasker.ID, steps []tasker.Assignment) error {
	if len(steps) > 0 && x.r.Context().Err() != nil {
		return s.releaseUndelivered(x, worker, steps)
	}
	err := x.respond(http.StatusOK, apiv1.ClaimedSteps{Steps: toClaimedSteps(key, worker, steps)})
	if errors.Is(err, errNoMemory) {
		return errors.Join(s.releaseUndelivered(x, worker, steps), err)
	}
	return err
}

func (s *server) takeSteps(x *request) error {
	var req apiv1.TakeSteps
	if err := x.read(&req); err != nil {
		return err
	}
	worker := x.pathUUID("worker_uuid")
	refs := make([]tasker.StepRef, len(req.Steps))
	for i, r := range req.Steps {
		var err error
		if refs[i].TaskUUID, err = parseID(r.TaskUUID); err != nil {
			return err
		}
		if refs[i].StepUUID, err = parseID(r.StepUUID); err != nil {
			return err
		}
	}
	key, err := s.loadLeaseKey(x.ctx)
	if err != nil {
		return err
	}
	steps, err := s.engine.TakeSteps(x.ctx, worker, refs)
	if err != nil {
		return err
	}
	return s.respondWithSteps(x, key, worker, steps)
}

// releaseTimeout limits the release of undelivered steps.
const releaseTimeout = 5 * time.Second

// releaseUndelivered releases steps that could not be sent to the worker.
func (s *server) releaseUndelivered(x *request, worker tasker.ID, steps []tasker.Assignment) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), releaseTimeout)
	defer cancel()
	leases := convert(steps, tasker.Assignment.Lease)
	if _, _, err := s.engine.Release(ctx, worker, leases); err != nil {
		return fmt.Errorf("release %d undelivered steps: %w", len(steps), err)
	}
	return nil
}

func toClaimedSteps(key leaseKey, worker tasker.ID, steps []tasker.Assignment) []apiv1.ClaimedStep {
	return convert(steps, func(a tasker.Assignment) apiv1.ClaimedStep {
		out := apiv1.FromAssignment(a)
		out.LeaseToken = key.signToken(worker, a.Lease())
		return out
	})
}

func (s *server) recordHeartbeat(x *request, req apiv1.Leases) (answer apiv1.HeartbeatAnswer, err error) {
	x.ctx = postgres.WithConnClass(x.ctx, postgres.Heartbeats)
	worker, leases, err := s.readLeases(x, req)
	if err != nil {
		return answer, err
	}
	beat, err := s.engine.Heartbeat(x.ctx, worker, leases)
	return apiv1.HeartbeatAnswer{
		Extended: convert(beat.Extended, func(e tasker.LeaseExtension) apiv1.ExtendedLease {
			return apiv1.ExtendedLease{StepUUID: e.StepUUID.String(), LeaseExpiresAt: e.ExpiresAt.UTC()}
		}),
		Lost:  convert(beat.Lost, tasker.ID.String),
		Drain: beat.Drain,
	}, err
}

func (s *server) drainWorker(x *request) (w tasker.Worker, err error) {
	worker := x.pathUUID("worker_uuid")
	if err := s.engine.DrainWorker(x.ctx, worker); err != nil {
		return w, err
	}
	return s.db.WorkerWithHealth(x.ctx, worker)
}

func (s *server) releaseSteps(x *request, req apiv1.Leases) (answer apiv1.Released, err error) {
	worker, leases, err := s.readLeases(x, req)
	if err != nil {
		return answer, err
	}
	released, lost, err := s.engine.Release(x.ctx, worker, leases)
	return apiv1.Released{Released: convert(released, tasker.ID.String), Lost: convert(lost, tasker.ID.String)}, err
}

func (s *server) saveCheckpoint(x *request, req apiv1.SaveCheckpoint) (none, error) {
	worker := x.pathUUID("worker_uuid")
	key, err := s.loadLeaseKey(x.ctx)
	if err != nil {
		return none{}, err
	}
	step, err := parseID(req.StepUUID)
	if err != nil {
		return none{}, err
	}
	lease, err := key.parseToken(worker, step, req.LeaseToken)
	if err != nil {
		return none{}, err
	}
	return none{}, s.engine.SaveCheckpoint(x.ctx, worker, lease, req.Checkpoint)
}

func (s *server) readLeases(x *request, req apiv1.Leases) (tasker.ID, []tasker.Lease, error) {
	worker := x.pathUUID("worker_uuid")
	key, err := s.loadLeaseKey(x.ctx)
	if err != nil {
		return worker, nil, err
	}
	var faults []tasker.Fault
	leases := make([]tasker.Lease, len(req.Leases))
	for i, l := range req.Leases {
		step, err := parseID(l.StepUUID)
		if err == nil {
			leases[i], err = key.parseToken(worker, step, l.LeaseToken)
		}
		if err != nil {
			faults = append(faults, tasker.Fault{Path: fmt.Sprintf("leases[%d]", i), Message: err.Error()})
		}
	}
	if len(faults) > 0 {
		return worker, nil, newInvalidBodyError(faults[:min(len(faults), maxFaults)])
	}
	return worker, leases, nil
}

func (s *server) leaveWorker(x *request) (none, error) {
	return none{}, s.engine.LeaveWorker(x.ctx, x.pathUUID("worker_uuid"))
}
