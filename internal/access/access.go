// Package access authorizes callers: it defines roles, the permissions they grant and the namespaces
// they apply to, and redacts what a caller may not read. Package auth authenticates callers.
package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tasker.example/tasker"
)

// Permission allows one kind of action on one kind of resource.
type Permission string

// The permissions. Those of the second group concern the whole installation and require a grant for
// all namespaces.
const (
	ReadTasks            Permission = "tasks:read"
	CreateTasks          Permission = "tasks:create"
	CancelTasks          Permission = "tasks:cancel"
	OperateSteps         Permission = "steps:operate"
	CompleteSteps        Permission = "steps:complete" // external steps
	ReadInvestigations   Permission = "investigations:read"
	UpdateInvestigations Permission = "investigations:update"
	ReadPayloads         Permission = "payloads:read" // contexts, results and error texts
	ReadTemplates        Permission = "templates:read"
	WriteTemplates       Permission = "templates:write"
	WriteSchedules       Permission = "schedules:write"
	OperateSchedules     Permission = "schedules:operate" // pause, resume, trigger, backfill
	ReadWorkers          Permission = "workers:read"      // and the queues
	DrainWorkers         Permission = "workers:drain"
	ActAsWorker          Permission = "workers:act"
	ReadEvents           Permission = "events:read"
	ResendEvents         Permission = "events:resend"

	ReadMetrics Permission = "metrics:read"
	ReadSystem  Permission = "system:read" // details of readiness, and sinks
	Administer  Permission = "system:admin"
)

// Permissions lists every permission.
func Permissions() []Permission {
	return []Permission{
		ReadTasks, CreateTasks, CancelTasks, OperateSteps, CompleteSteps, ReadInvestigations, UpdateInvestigations, ReadPayloads,
		ReadTemplates, WriteTemplates, WriteSchedules, OperateSchedules, ReadWorkers, DrainWorkers, ActAsWorker, ReadEvents, ResendEvents, ReadMetrics, ReadSystem, Administer,
	}
}

// IsInstallationWide reports whether a permission concerns the whole installation.
func (p Permission) IsInstallationWide() bool {
	return p == ReadMetrics || p == ReadSystem || p == Administer
}

// Role is a set of permissions.
type Role string

// The roles.
const (
	Viewer    Role = "viewer"    // sees everything but payloads
	Operator  Role = "operator"  // repairs what is stuck
	Developer Role = "developer" // registers templates and creates tasks
	Worker    Role = "worker"    // executes steps
	Admin     Role = "admin"     // may do everything
)

// Roles lists every role.
func Roles() []Role { return []Role{Viewer, Operator, Developer, Worker, Admin} }

var viewing = []Permission{ReadTasks, ReadInvestigations, ReadTemplates, ReadWorkers, ReadEvents, ReadMetrics, ReadSystem}

// Permissions returns the permissions of a role, or nil for an unknown role.
func (r Role) Permissions() []Permission {
	switch r {
	case Viewer:
		return viewing
	case Operator:
		return slices.Concat(viewing, []Permission{ReadPayloads, CancelTasks, OperateSteps, CompleteSteps, UpdateInvestigations, OperateSchedules, DrainWorkers, ResendEvents})
	case Developer:
		return slices.Concat(viewing, []Permission{ReadPayloads, CreateTasks, CancelTasks, WriteTemplates, WriteSchedules, OperateSchedules})
	case Worker:
		return []Permission{ActAsWorker, CompleteSteps, ReadPayloads}
	case Admin:
		return Permissions()
	default:
		return nil
	}
}

// AllNamespaces is the namespace of a grant for all namespaces.
const AllNamespaces = "*"

// Grant is a role in one namespace or in all namespaces.
type Grant struct {
	Role      Role
	Namespace string // or [AllNamespaces]
}

// String returns the grant in the form of [ParseGrant].
func (g Grant) String() string { return string(g.Role) + "@" + g.Namespace }

// MaxGrants is the maximum number of grants of a caller.
const MaxGrants = 100

const maxNamespace = 128

// ParseGrant parses role@namespace, with * for all namespaces. The error is Invalid.
func ParseGrant(text string) (Grant, error) {
	role, namespace, found := strings.Cut(text, "@")
	g := Grant{Role: Role(role), Namespace: namespace}
	switch {
	case !slices.Contains(Roles(), g.Role):
		return Grant{}, tasker.Errorf(tasker.Invalid, "invalid grant %q: the role must be one of %s", truncate(text), listRoleNames())
	case !found || namespace == "":
		return Grant{}, tasker.Errorf(tasker.Invalid, "invalid grant %q: must be role@namespace, or role@%s for all namespaces", truncate(text), AllNamespaces)
	case utf8.RuneCountInString(namespace) > maxNamespace || !utf8.ValidString(namespace) || strings.ContainsRune(namespace, 0):
		return Grant{}, tasker.Errorf(tasker.Invalid, "invalid grant %q: the namespace must be valid UTF-8 and at "+
			"most %d characters long", truncate(text), maxNamespace)
	}
	return g, nil
}

// ParseGrants parses, sorts and deduplicates grants. The error is Invalid.
func ParseGrants(texts []string) ([]Grant, error) {
	if len(texts) > MaxGrants {
		return nil, tasker.Errorf(tasker.Invalid, "too many grants: got %d, the limit is %d", len(texts), MaxGrants)
	}
	list := make([]Grant, 0, len(texts))
	for _, text := range texts {
		g, err := ParseGrant(text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(list, g) {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Role, b.Role))
	})
	return list, nil
}

func listRoleNames() string {
	names := make([]string, 0, len(Roles()))
	for _, r := range Roles() {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

func truncate(text string) string {
	const most = 60
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// Scope is a set of namespaces. The zero Scope is empty.
type Scope struct {
	all        bool
	namespaces []string // sorted
}

// EverywhereScope returns the scope of all namespaces.
func EverywhereScope() Scope { return Scope{all: true} }

// NamespaceScope returns the scope that contains these namespaces.
func NamespaceScope(names ...string) Scope {
	names = slices.Clone(names)
	slices.Sort(names)
	return Scope{namespaces: slices.Compact(names)}
}

// IncludesAll reports whether the scope contains all namespaces.
func (s Scope) IncludesAll() bool { return s.all }

// IsEmpty reports whether the scope contains no namespace.
func (s Scope) IsEmpty() bool { return !s.all && len(s.namespaces) == 0 }

// Has reports whether the scope contains a namespace.
func (s Scope) Has(namespace string) bool {
	if s.all {
		return true
	}
	_, found := slices.BinarySearch(s.namespaces, namespace)
	return found
}

// Covers reports whether the scope contains another scope.
func (s Scope) Covers(other Scope) bool {
	return s.all || !other.all && !slices.ContainsFunc(other.namespaces, func(n string) bool { return !s.Has(n) })
}

// Intersect returns the intersection of two scopes.
func (s Scope) Intersect(other Scope) Scope {
	switch {
	case s.all:
		return other
	case other.all:
		return s
	}
	return Scope{namespaces: slices.DeleteFunc(slices.Clone(s.namespaces), func(n string) bool { return !other.Has(n) })}
}

// List returns the namespaces for a query. It returns nil for all namespaces, and a non-nil empty
// list for an empty scope.
func (s Scope) List() []string {
	if s.all {
		return nil
	}
	return append([]string{}, s.namespaces...)
}

// Identity is an authenticated caller with its permissions. It is immutable.
type Identity struct {
	Subject string // such as key:deploy or alice@example.com; empty without authentication
	Grants  []Grant
	Groups  []string // from the identity provider

	scopes map[Permission]Scope
	seen   Scope // namespaces with any permission
}

// MaxSubject is the maximum length of a subject, in bytes.
const MaxSubject = 128

// NewIdentity returns the identity of a subject. It escapes blanks and parentheses in the subject,
// so that the result of [Identity.Actor] cannot be mistaken for another subject. It truncates a
// long subject and appends a digest.
func NewIdentity(subject string, grants []Grant) *Identity {
	id := &Identity{Subject: sanitizeSubject(subject), Grants: slices.Clone(grants), scopes: map[Permission]Scope{}}
	names := map[Permission][]string{}
	var seen []string
	for _, g := range grants {
		for _, p := range g.Role.Permissions() {
			switch {
			case g.Namespace == AllNamespaces:
				id.scopes[p], id.seen = EverywhereScope(), EverywhereScope()
			case !p.IsInstallationWide():
				names[p] = append(names[p], g.Namespace)
				seen = append(seen, g.Namespace)
			}
		}
	}
	for p, list := range names {
		if !id.scopes[p].all {
			id.scopes[p] = NamespaceScope(list...)
		}
	}
	if !id.seen.all {
		id.seen = NamespaceScope(seen...)
	}
	return id
}

// Local returns the identity of all callers if the server does not authenticate. It has all
// permissions, and callers choose the actors that are recorded.
func Local() *Identity { return NewIdentity("", []Grant{{Admin, AllNamespaces}}) }

// sanitizeSubject percent-encodes blanks, parentheses, percent signs, and invisible or
// direction-changing characters. It truncates a subject longer than MaxSubject and appends a
// digest, so that two subjects never become one.
func sanitizeSubject(text string) string {
	var b strings.Builder
	for _, c := range strings.ToValidUTF8(text, "\uFFFD") {
		if c == ' ' || c == '(' || c == ')' || c == '%' || !unicode.IsPrint(c) || unicode.In(c, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
			for _, octet := range []byte(string(c)) {
				fmt.Fprintf(&b, "%%%02X", octet)
			}
		} else {
			b.WriteRune(c)
		}
	}
	if b.Len() <= MaxSubject {
		return b.String()
	}
	sum := sha256.Sum256([]byte(text))
	end := "%~" + base64.RawURLEncoding.EncodeToString(sum[:16])
	return strings.ToValidUTF8(b.String()[:MaxSubject-len(end)], "") + end
}

// GrantTexts returns the grants in the format of [ParseGrant].
func (id *Identity) GrantTexts() []string {
	texts := make([]string, len(id.Grants))
	for i, g := range id.Grants {
		texts[i] = g.String()
	}
	return texts
}

// Scope returns the namespaces for which the identity has a permission.
func (id *Identity) Scope(p Permission) Scope { return id.scopes[p] }

// VisibleScope returns the namespaces for which the identity has any permission. To the caller,
// other namespaces appear not to exist.
func (id *Identity) VisibleScope() Scope { return id.seen }

// HasPermission reports whether the identity has a permission for a namespace.
func (id *Identity) HasPermission(p Permission, namespace string) bool {
	return id.scopes[p].Has(namespace)
}

// Assignees returns the names by which human steps are assigned to the caller: the subject and the
// groups. It returns at most [tasker.MaxInboxAssignees].
func (id *Identity) Assignees() []string {
	var list []string
	if id.Subject != "" {
		list = append(list, id.Subject)
	}
	for _, g := range id.Groups {
		if name := tasker.GroupPrefix + g; tasker.AssigneeFault(name) == "" && len(list) < tasker.MaxInboxAssignees {
			list = append(list, name)
		}
	}
	return list
}

// maxActor is the maximum length of an actor, in characters.
const maxActor = 255

// Actor returns the actor to record: the subject, followed by name in parentheses if it differs.
// If the caller is not authenticated, it returns only name.
func (id *Identity) Actor(name string) string {
	name = strings.TrimSpace(name)
	switch {
	case id.Subject == "":
		return name
	case name == "" || name == id.Subject:
		return id.Subject
	}
	room := maxActor - utf8.RuneCountInString(id.Subject) - len(" ()")
	if runes := []rune(name); len(runes) > room {
		name = string(runes[:room-1]) + "…"
	}
	return id.Subject + " (" + name + ")"
}

// Kind is a kind of resource.
type Kind string

// The kinds. A step belongs to its task.
const (
	TaskKind          Kind = "task"
	InvestigationKind Kind = "investigation"
	CaseKind          Kind = "case"
	IncidentKind      Kind = "incident"
	WorkerKind        Kind = "worker"
	EventKind         Kind = "event"
	OperationKind     Kind = "operation"
	HoldKind          Kind = "hold"
	ScheduleKind      Kind = "schedule"
	// ExplainedKind means any kind that can be explained, or a step.
	ExplainedKind Kind = "task, step, investigation, case, operation or hold"
)

// Finder returns the namespaces of a resource, or nil if it does not exist.
type Finder func(ctx context.Context, kind Kind, id tasker.ID) ([]string, error)

// Resource is an object that belongs to namespaces.
type Resource struct {
	Kind Kind
	ID   tasker.ID
}

// Check returns the context for a request about one resource. It returns Forbidden if the caller
// lacks the permission for the namespaces of the resource, and NotFound if the caller has no
// permission there at all. It looks up the namespaces only if necessary.
func (find Finder) Check(ctx context.Context, id *Identity, needs Permission, r Resource) (context.Context, error) {
	scope, payloads := id.Scope(needs), id.Scope(ReadPayloads)
	if scope.IncludesAll() && (payloads.IncludesAll() || payloads.IsEmpty()) {
		return ctx, nil
	}
	namespaces, err := find(ctx, r.Kind, r.ID)
	if err != nil {
		return ctx, err
	}
	seen := namespaces != nil
	allowed := seen
	for _, n := range namespaces {
		seen = seen && id.VisibleScope().Has(n)
		allowed = allowed && scope.Has(n)
	}
	switch {
	case allowed:
		return WithNamespaces(ctx, namespaces), nil
	case seen:
		return ctx, id.CheckPermission(needs, namespaces...)
	default:
		return ctx, tasker.Errorf(tasker.NotFound, "%s %s not found", r.Kind, r.ID)
	}
}

// RequirePermission returns a Forbidden error if the caller lacks a permission in a namespace that
// the request names. The error is the same whether or not the namespace exists.
func (id *Identity) RequirePermission(needs Permission, namespace string) error {
	if id.HasPermission(needs, namespace) {
		return nil
	}
	return id.CheckPermission(needs, namespace)
}

// RequireLimitPermission returns an error if the caller may not change a limit. Changing the server
// limit requires an administrator of all namespaces; the others require an operator.
func (id *Identity) RequireLimitPermission(ref tasker.LimitRef) error {
	switch {
	case ref.Kind != tasker.ServerLimit:
		return id.RequirePermission(OperateSteps, ref.Namespace)
	case !id.Scope(Administer).IncludesAll():
		return tasker.Errorf(tasker.Forbidden, "only administrators of all namespaces may change the server limit")
	default:
		return nil
	}
}

// CheckPermission returns the Forbidden error for a caller that lacks a permission in these
// namespaces. If none are set, the error names no namespace. It suggests a role with the
// permission.
func (id *Identity) CheckPermission(needs Permission, namespaces ...string) error {
	where, role := "", string(roleWith(needs))
	switch {
	case needs.IsInstallationWide():
		where, role = " for all namespaces", role+"@"+AllNamespaces
	case len(namespaces) == 1:
		where, role = " in namespace "+namespaces[0], role+"@"+namespaces[0]
	case len(namespaces) > 0:
		where = " in namespace " + strings.Join(namespaces, ", ")
	}
	return tasker.Errorf(tasker.Forbidden, "permission denied: %s needs permission %s%s: ask an administrator (%s@%s) for the role %s",
		id.Subject, needs, where, Admin, AllNamespaces, role).WithDetails(map[string]string{"permission": string(needs)})
}

// roleWith returns the first role that has a permission.
func roleWith(p Permission) Role {
	for _, r := range Roles() {
		if slices.Contains(r.Permissions(), p) {
			return r
		}
	}
	return Admin
}
