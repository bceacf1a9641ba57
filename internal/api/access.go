package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/emission"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/postgres"
)

// parameters describes the path parameters of all routes for access checks.
var parameters = access.Parameters{
	Resources: map[string]access.Kind{
		"uuid": access.TaskKind, "task_uuid": access.TaskKind, "dlq_entry_uuid": access.InvestigationKind,
		"case_id": access.CaseKind, "incident_id": access.IncidentKind, "worker_uuid": access.WorkerKind, "event_uuid": access.EventKind, "operation_uuid": access.OperationKind,
		"hold_uuid": access.HoldKind, "schedule_uuid": access.ScheduleKind,
		"id": access.ExplainedKind,
	},
	Within: []string{"namespace", "step_uuid", "step", "name", "version", "key_uuid", "link_uuid", "handler"},
}

// checkAccess panics if a route has no access rule or no request class, so that no server starts with it.
func (rt *route) checkAccess() {
	rule, err := access.Rule{Needs: rt.Needs, Also: rt.Also, Anyone: rt.Anyone, Public: rt.Public}.For(rt.Path, parameters)
	if err != nil {
		panic(fmt.Sprintf("%s %v", rt.Method, err))
	}
	if !slices.Contains(overload.Classes(), rt.Class) {
		panic(fmt.Sprintf("%s %s has no request class", rt.Method, rt.Path))
	}
	rt.rule = rule
}

// admit authenticates the caller and checks their permissions before the request is decoded. It limits
// x.ctx to what the caller may see.
func (x *request) admit() error {
	rt := x.route
	caller, err := x.server.auth.AuthenticateRequest(x.r)
	if rt.Public {
		x.caller = caller // may be nil; see canSeeSystem
		return nil
	}
	if err != nil {
		if tasker.CodeOf(err) == tasker.Unauthorized {
			x.w.Header().Set("WWW-Authenticate", auth.Challenge)
		}
		return err
	}
	x.caller = caller
	x.memory.caller, x.unread.caller = caller.Subject, caller.Subject
	requestLogFromContext(x.ctx).subject = caller.Subject
	if rt.Anyone {
		return nil
	}
	if rt.Needs == access.ActAsWorker && x.server.certificates && (x.r.TLS == nil || len(x.r.TLS.VerifiedChains) == 0) {
		return tasker.Errorf(tasker.Forbidden, "client certificate required: workers need one signed by server.tls_client_ca_file, in addition to their key")
	}
	if err := rt.rule.CheckIdentity(caller.Identity); err != nil {
		return err
	}
	if err := x.awaitAdmission(caller.Subject); err != nil {
		return err
	}
	if rt.Wait > 0 { // a waiting claim ends with the access of its caller
		stop := caller.OnEnd(x.cancel)
		context.AfterFunc(x.ctx, func() { stop() })
	}
	if x.ctx, err = rt.rule.Admit(x.ctx, caller.Identity, x.server.findNamespaces, x.parsePathUUID); err != nil {
		return err
	}
	if rt.Needs == access.ActAsWorker && x.r.PathValue("worker_uuid") != "" {
		return x.checkRegistrant()
	}
	if namespace := x.r.PathValue("namespace"); namespace != "" {
		return x.checkNamespace(namespace)
	}
	return nil
}

// checkRegistrant returns NotFound if the worker in the path was registered by another caller, for
// example with an older API key. The worker then registers again with its current key.
func (x *request) checkRegistrant() error {
	id, err := x.parsePathUUID("worker_uuid")
	if err != nil || x.caller.Subject == "" {
		return err
	}
	w, err := x.server.findWorker(x.ctx, id)
	if err != nil || w == nil || w.RegisteredBy == "" || w.RegisteredBy == x.caller.Subject {
		return err
	}
	return tasker.Errorf(tasker.NotFound, "worker %s not found", id)
}

// awaitAdmission waits until the request limits of its class admit the request. It reads the body
// first, so that a slow sender does not occupy a slot.
func (x *request) awaitAdmission(caller string) error {
	gate, class := x.server.gate, x.route.Class
	if err := gate.Admit(class, caller); err != nil {
		return err
	}
	if x.route.Body != nil {
		x.receive()
		if tasker.CodeOf(x.received.err) == tasker.Unavailable {
			return x.received.err
		}
	}
	leave, err := gate.Wait(x.ctx, class, caller)
	if err == nil {
		x.leaveGate = leave
	}
	return err
}

// auditRefusal records in the audit log that an authenticated caller lacks a permission.
func (x *request) auditRefusal(err error) {
	if tasker.CodeOf(err) != tasker.Forbidden || x.caller == nil {
		return
	}
	data := map[string]string{"method": x.r.Method, "route": x.route.Path, "from": x.r.RemoteAddr}
	if _, id := x.route.rule.ResourceParameter(); id != "" {
		data[id] = x.r.PathValue(id)
	}
	x.server.auth.AuditRefusal(x.ctx, x.caller.Subject, data)
}

// findNamespaces implements [access.Finder].
func (s *server) findNamespaces(ctx context.Context, kind access.Kind, id tasker.ID) ([]string, error) {
	if kind != access.WorkerKind {
		return s.db.FindNamespaces(ctx, kind, id)
	}
	w, err := s.findWorker(ctx, id)
	if w == nil {
		return nil, err
	}
	return w.Namespaces, nil
}

// findWorker returns who registered a worker for which namespaces, or nil if it does not exist. It
// caches this, because it never changes and workers call often. It uses the connections of
// heartbeats, which do not wait for other requests.
func (s *server) findWorker(ctx context.Context, id tasker.ID) (*postgres.WorkerAccess, error) {
	if known := s.workers.get(id); known != nil {
		return known, nil
	}
	found, err := s.db.WorkerAccess(postgres.WithConnClass(ctx, postgres.Heartbeats), id)
	if found != nil {
		s.workers.put(id, found)
	}
	return found, err
}

// workerNamespaces caches the registrants and namespaces of workers by id.
type workerNamespaces struct {
	mu    sync.RWMutex
	of    map[tasker.ID]*postgres.WorkerAccess
	names int // number of cached namespaces
}

// maxCachedWorkers is the maximum number of namespaces cached for all workers.
const maxCachedWorkers = 20_000

func (f *workerNamespaces) get(id tasker.ID) *postgres.WorkerAccess {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.of[id]
}

func (f *workerNamespaces) put(id tasker.ID, w *postgres.WorkerAccess) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil || f.names >= maxCachedWorkers {
		f.of, f.names = map[tasker.ID]*postgres.WorkerAccess{}, 0
	}
	f.names += len(w.Namespaces)
	f.of[id] = w
}

// checkNamespace returns an error if the caller lacks the permission of the route in a namespace.
func (x *request) checkNamespace(namespace string) error {
	return x.caller.RequirePermission(x.route.Needs, namespace)
}

// checkQueryNamespace returns an error if the query names a namespace in which the caller lacks the
// permission of the route.
func (x *request) checkQueryNamespace() error {
	if namespace := x.query.Get("namespace"); namespace != "" && x.route.Needs != "" {
		return x.checkNamespace(namespace)
	}
	return nil
}

// checkResend returns an error if the caller may not redeliver events. A range of positions contains
// events of all namespaces.
func (x *request) checkResend(r emission.ReEmission) error {
	if r.Event == nil {
		if !x.caller.Scope(x.route.Needs).IncludesAll() {
			return x.caller.CheckPermission(x.route.Needs, access.AllNamespaces)
		}
		return nil
	}
	_, err := access.Finder(x.server.findNamespaces).Check(x.ctx, x.caller.Identity, x.route.Needs, access.Resource{Kind: access.EventKind, ID: *r.Event})
	return err
}

// resolveActor returns the actor to record in histories: the authenticated caller, and the name that the
// request contains, if any.
func (x *request) resolveActor(name string) string { return x.caller.Actor(name) }

// resolveOptionalActor is like actor for an optional name.
func (x *request) resolveOptionalActor(name *string) *string {
	if name == nil {
		return nil
	}
	actor := x.resolveActor(*name)
	return &actor
}

// canSeeSystem reports whether the caller of a public route may see the state of the server.
func (x *request) canSeeSystem() bool {
	return x.caller != nil && x.caller.Scope(access.ReadSystem).IncludesAll()
}

func (s *server) whoAmI(x *request) (apiv1.Identity, error) {
	return apiv1.Identity{Subject: x.caller.Subject, Grants: orEmpty(x.caller.GrantTexts()), SignIn: s.auth != nil}, nil
}

func (s *server) listKeys(x *request, q apiv1.KeyQuery) (apiv1.KeyList, error) {
	list, more, err := s.db.Keys(x.ctx, postgres.KeyFilter{Revoked: q.Revoked, Search: q.Search, Limit: q.Limit, Offset: q.Offset})
	return apiv1.KeyList{Keys: convert(list, toKey), Pagination: newPagination(q.Limit, q.Offset, len(list), more)}, err
}

func toKey(k access.Key) apiv1.Key {
	return apiv1.Key{
		KeyUUID: k.UUID.String(), Name: k.Name, Grants: append([]string{}, k.Grants...), Prefixes: append([]string{}, k.Prefixes...),
		CreatedBy: k.CreatedBy, CreatedAt: k.CreatedAt.UTC(), ExpiresAt: k.ExpiresAt, LastUsedAt: k.LastUsedAt,
		RevokedAt: k.RevokedAt, RevokedBy: k.RevokedBy,
	}
}

func (s *server) createKey(x *request, req apiv1.CreateKey) (apiv1.CreatedKey, error) {
	var validFor *time.Duration
	if req.ExpiresInSeconds != nil {
		d := time.Duration(*req.ExpiresInSeconds) * time.Second
		validFor = &d
	}
	k, token, err := auth.CreateKey(x.ctx, s.db, auth.NewKey{Name: req.Name, Grants: req.Grants, ValidFor: validFor, Actor: x.resolveActor("")})
	return apiv1.CreatedKey{Key: toKey(k), Token: token}, err
}

func (s *server) rotateKey(x *request, req apiv1.RotateKey) (apiv1.CreatedKey, error) {
	id := x.pathUUID("key_uuid")
	token := access.NewToken()
	if err := s.db.RotateKey(x.ctx, id, token, time.Duration(req.GraceSeconds)*time.Second, x.resolveActorOrUnknown("")); err != nil {
		return apiv1.CreatedKey{}, err
	}
	s.auth.PollRevocations(x.ctx)
	k, err := s.db.Key(x.ctx, id)
	return apiv1.CreatedKey{Key: toKey(k), Token: token.Text}, err
}

func (s *server) revokeKey(x *request) (apiv1.Key, error) {
	k, err := s.db.RevokeKey(x.ctx, x.pathUUID("key_uuid"), x.resolveActorOrUnknown(""))
	if err == nil {
		s.auth.PollRevocations(x.ctx)
	}
	return toKey(k), err
}

func (s *server) listSessions(x *request, q apiv1.SessionQuery) (apiv1.SessionList, error) {
	list, more, err := s.db.OpenSessions(x.ctx, postgres.SessionFilter{Subject: q.Subject, Idle: s.auth.Idle(), Limit: q.Limit, Offset: q.Offset})
	return apiv1.SessionList{Sessions: convert(list, toSession), Pagination: newPagination(q.Limit, q.Offset, len(list), more)}, err
}

func toSession(s access.Session) apiv1.Session {
	var key *string
	if s.KeyUUID != nil {
		text := s.KeyUUID.String()
		key = &text
	}
	return apiv1.Session{
		SessionUUID: s.UUID.String(), Subject: s.Subject, KeyUUID: key, Groups: append([]string{}, s.Groups...),
		CreatedAt: s.CreatedAt.UTC(), LastUsedAt: s.SeenAt.UTC(), EndsAt: s.EndsAt.UTC(),
	}
}

func (s *server) endSessions(x *request, req apiv1.EndSessions) (ended apiv1.EndedSessions, err error) {
	if (req.SessionUUID == "") == (req.Subject == "") {
		return ended, tasker.Errorf(tasker.Invalid, "set either session_uuid or subject")
	}
	var id tasker.ID
	if req.SessionUUID != "" {
		if id, err = parseID(req.SessionUUID); err != nil {
			return ended, tasker.Errorf(tasker.Invalid, "session_uuid %v", err)
		}
	}
	if ended.Ended, err = s.db.EndSessions(x.ctx, id, req.Subject, x.resolveActorOrUnknown("")); err == nil {
		s.auth.PollRevocations(x.ctx)
	}
	return ended, err
}

// resolveActorOrUnknown is like actor but returns unknownActor instead of an empty string.
func (x *request) resolveActorOrUnknown(name string) string {
	return cmp.Or(x.resolveActor(name), unknownActor)
}
