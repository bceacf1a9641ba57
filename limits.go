package tasker

import "cmp"

// Size limits of documents, requests and responses. docs/reference/limits.md lists them, and a
// test compares the two.
//
// The size of a document is its size when it is read back, not when it was sent: PostgreSQL adds
// a space after every colon and comma and writes numbers without exponents, so that 1e308 has 309
// digits.
const (
	MaxDocumentBytes = 1 << 20 // context of a task, the result of a step and each metadata document

	// MaxAssigneeBytes limits the name of an assignee, MaxInboxAssignees the assignees of an
	// [InboxFilter].
	MaxAssigneeBytes  = 128
	MaxInboxAssignees = 100

	// MaxOpenAnswerLinks limits the usable answer links of a step, MaxEndedAnswerLinks the stored
	// links that are no longer usable.
	MaxOpenAnswerLinks  = 20
	MaxEndedAnswerLinks = 30

	// MaxSilentFailures is the number of consecutive failures of deferred work after which the
	// task gets an investigation.
	MaxSilentFailures = 5

	// MaxDocumentValues limits the values of a document, including nested ones. Decoding takes up
	// to 66 bytes of memory per 2-byte value.
	MaxDocumentValues = 100_000
	MaxDocumentKeys   = 10_000    // keys of all objects of a document together
	MaxDocumentDepth  = 64        // nesting of objects and arrays
	MaxStringBytes    = 256 << 10 // a string of a document, after unescaping

	// MaxNumberDigits limits the digits of a number written without an exponent. All 64-bit floats
	// fit: the smallest has 341 digits with 17 significant ones. Numbers that overflow a 64-bit
	// float or underflow to 0 are rejected too.
	MaxNumberDigits     = 350
	MaxNamespaceWeights = 1000 // namespaces with an explicit weight
	MaxSearchTags       = 10   // tags of one task query
	MaxSearchConditions = 10   // attribute conditions of one task query

	// MaxTaskWaits limits the requests that wait for tasks on one server. One caller gets half.
	MaxTaskWaits = 1000

	// MaxSearchCost limits the cost of all search expressions of one request in CEL cost units. A
	// single expression may use 100,000.
	MaxSearchCost = 10_000_000

	// MaxItemListBytes limits the list result that an item of a map step carries inline. A larger
	// one is passed by reference.
	MaxItemListBytes = 1 << 10

	// MaxInlineInputBytes limits the dependency results that a claimed step carries inline. The
	// others are passed by reference.
	MaxInlineInputBytes = 4 << 20

	// MaxInputBytes limits the dependency results of one step together. A step with more cannot be
	// executed: it fails with [InputTooLarge].
	MaxInputBytes = 1 << 30

	// MaxClaimBytes limits the inputs of all steps of one claim together. A claim always returns
	// at least one step.
	MaxClaimBytes = 8 << 20

	// MaxAnswerBytes limits an API response. A longer list is truncated and marked as such.
	MaxAnswerBytes = 16 << 20

	// MaxUnreadBytes limits the total size of the responses that a server is writing, beyond the
	// first 64 KiB of each.
	MaxUnreadBytes = 128 << 20

	// MaxSnapshotBytes limits the snapshot of an investigation. Documents that do not fit are
	// replaced by their size, digest and API path.
	MaxSnapshotBytes    = 4 << 20
	MaxEvidenceAttempts = 20 // newest failed attempts in an [EvidenceFile]

	// MaxReportEntries limits the investigations of an [IncidentReport]; the next three limit its
	// lists.
	MaxReportEntries     = 100_000
	MaxReportCases       = 100
	MaxReportMembers     = 20
	MaxReportEvents      = 500
	MaxEntryNoteBytes    = 1 << 20 // notes and metadata of one investigation, over all its changes
	MaxSharedCreates     = 128     // requests to create tasks that share a transaction
	MaxSharedCreateBytes = 1 << 20 // size of a shared transaction: the contexts plus 1 KiB per step

	// MaxSmallCreateBytes limits a request in a shared transaction. A larger one runs alone and
	// does not delay the others.
	MaxSmallCreateBytes = 64 << 10
	MaxWorkers          = 10_000   // live workers of all namespaces
	MaxWorkerRows       = 20_000   // stored workers, including gone ones
	MaxWorkerBytes      = 64 << 10 // name, namespaces and handlers of a worker together
	MaxKeys             = 1000     // API keys that are not revoked

	// MaxSessions limits the sessions of one subject. An additional session ends the oldest one.
	MaxSessions = 100

	// MaxSignIns limits the concurrent sign-ins at the identity provider. An additional sign-in
	// cancels the oldest one.
	MaxSignIns      = 10_000
	MaxEntryChanges = 1000 // changes of one open investigation

	// MaxCaseNotes limits the notes of one case. Other changes are not limited: a case can always
	// be assigned.
	MaxCaseNotes       = 1000
	MaxEntriesByHand   = 100      // investigations that operators open for one task
	MaxRejectedReports = 100      // stored rejected reports of one step
	MaxCacheBytes      = 32 << 20 // template cache, and worker cache, of a process
	MaxOperationItems  = 100_000  // steps of one operation

	// MaxOpenOperations limits the unfinished operations, MaxOpenOperationsPerNamespace those of a
	// single namespace.
	MaxOpenOperations             = 100
	MaxOpenOperationsPerNamespace = MaxOpenOperations / 2
	MaxOperationChunk             = 200    // steps released in one transaction
	MaxRecreateChunk              = 20     // tasks recreated in one transaction
	MaxOperationInFlight          = 10_000 // released steps of one operation without an outcome

	// MaxOperationCauses limits the causes of the failures that an operation selected. With more,
	// no failure counts as a new cause.
	MaxOperationCauses = 1000
	MaxTreeTasks       = 200    // descendants in a task tree
	MaxTreeChildren    = 20     // children of one task in a tree
	MaxMapItems        = 10_000 // elements of the list of a map step

	// MaxMapBytes limits the size of the list of a map step. MaxDocumentBytes limits each element.
	MaxMapBytes        = 4 << 20
	MaxCheckpointBytes = 16 << 10 // checkpoint of a step, so that a claim of 1000 steps fits in memory
	MaxFailureBytes    = 64 << 10 // stored context of a failure
)

// InputTooLarge is the failure type of a step whose inputs exceed [MaxInputBytes].
const InputTooLarge = "input_too_large"

// Bounds are quotas for objects that callers create. Zero means the default. Lowering a quota
// does not remove existing objects.
type Bounds struct {
	Namespaces int // with a template
	Templates  int // names per namespace
	Versions   int // per template
	Handlers   int // in the templates of a namespace
	Workers    int // live workers per namespace
}

// DefaultBounds returns the default quotas.
func DefaultBounds() Bounds {
	return Bounds{Namespaces: 1000, Templates: 1000, Versions: 1000, Handlers: 1000, Workers: 1000}
}

// Complete returns b with defaults for zero fields.
func (b Bounds) Complete() Bounds {
	d := DefaultBounds()
	return Bounds{
		Namespaces: cmp.Or(b.Namespaces, d.Namespaces), Templates: cmp.Or(b.Templates, d.Templates), Versions: cmp.Or(b.Versions, d.Versions),
		Handlers: cmp.Or(b.Handlers, d.Handlers), Workers: cmp.Or(b.Workers, d.Workers),
	}
}
