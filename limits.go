package tasker

import "cmp"

// The byte budget: every document, answer and request has a bound, and all of
// them are stated here and in docs/reference/limits.md, which a test compares.
//
// The size of a document is the size it has when it is read back, not the size it
// had when it was sent: the database stores JSON in a form of its own, writes a
// space after every colon and comma, and spells numbers out, so that 1e308 has 309
// digits.
const (
	// MaxDocumentBytes bounds the context of a task, the result of a step and
	// each metadata document.
	MaxDocumentBytes = 1 << 20

	// MaxAssigneeBytes bounds the name of an assignee, and MaxInboxAssignees how many of them
	// an [InboxFilter] has.
	MaxAssigneeBytes  = 128
	MaxInboxAssignees = 100

	// MaxOpenAnswerLinks bounds the links of a step by which it can be answered, and
	// MaxEndedAnswerLinks how many of the others are kept.
	MaxOpenAnswerLinks  = 20
	MaxEndedAnswerLinks = 30

	// MaxSilentFailures is the number of failures in a row after which work of the server on a task opens an
	// investigation of the task.
	MaxSilentFailures = 5

	// MaxDocumentValues bounds the values of a document, nested ones included:
	// one that is decoded takes up to 66 bytes of memory for a value of 2 bytes.
	MaxDocumentValues = 100_000

	// MaxDocumentKeys bounds the keys of all objects of a document together.
	MaxDocumentKeys = 10_000

	// MaxDocumentDepth bounds objects and arrays inside one another.
	MaxDocumentDepth = 64

	// MaxStringBytes bounds one string of a document, escapes undone.
	MaxStringBytes = 256 << 10

	// MaxNumberDigits bounds the digits of a number that is written out without an
	// exponent. Every 64-bit float has fewer, printed with up to 17 digits: the
	// smallest has 341. A number must also be one that a 64-bit float can hold,
	// though not exactly: neither too large nor so small that it would become 0.
	MaxNumberDigits = 350

	// MaxNamespaceWeights bounds the namespaces that have a weight of their own in claims.
	MaxNamespaceWeights = 1000

	// MaxSearchTags bounds the tags that one list of tasks asks for.
	MaxSearchTags = 10

	// MaxSearchConditions bounds the attributes that one list of tasks asks for.
	MaxSearchConditions = 10

	// MaxSearchCost bounds the work of the expressions by which the tasks of one request
	// are found, in units of CEL; one expression may take 100,000.
	MaxSearchCost = 10_000_000

	// MaxItemListBytes bounds the result with the list of a map step that an item
	// carries. A larger one is handed out by reference.
	MaxItemListBytes = 1 << 10
	// MaxInlineInputBytes bounds the dependency results that one claimed step
	// carries inline. A step with more gets the rest by reference.
	MaxInlineInputBytes = 4 << 20

	// MaxInputBytes bounds all dependency results of one step together. A step
	// with more can never be executed: it fails with [InputTooLarge] as its cause.
	MaxInputBytes = 1 << 30

	// MaxClaimBytes bounds the inputs of all steps of one claim together. A
	// claim always hands out at least one step.
	MaxClaimBytes = 8 << 20

	// MaxAnswerBytes bounds an answer of the API. A list that would be larger
	// ends early and says so.
	MaxAnswerBytes = 16 << 20

	// MaxUnreadBytes bounds the answers that a server is writing, all together, beyond the
	// first 64 KiB of each.
	MaxUnreadBytes = 128 << 20

	// MaxSnapshotBytes bounds the snapshot of an investigation. What does not fit
	// is replaced by its size, its digest, and where it can be read.
	MaxSnapshotBytes = 4 << 20

	// MaxEvidenceAttempts bounds the attempts in an [EvidenceFile]: the newest that failed.
	MaxEvidenceAttempts = 20

	// MaxReportEntries bounds the investigations of an [IncidentReport], and the next ones what of it
	// is listed.
	MaxReportEntries = 100_000
	MaxReportCases   = 100
	MaxReportMembers = 20
	MaxReportEvents  = 500

	// MaxEntryNoteBytes bounds the notes and metadata that people write into one
	// investigation, all changes of it together.
	MaxEntryNoteBytes = 1 << 20

	// MaxSharedCreates bounds the requests to create tasks that share a transaction.
	MaxSharedCreates = 128

	// MaxSharedCreateBytes bounds what they store together: their contexts, and 1 KiB
	// for each step.
	MaxSharedCreateBytes = 1 << 20

	// MaxSmallCreateBytes bounds such a request. A larger one has a transaction of its
	// own, so that small ones do not wait for it.
	MaxSmallCreateBytes = 64 << 10

	// MaxWorkers bounds the workers that are alive, in all namespaces together.
	MaxWorkers = 10_000

	// MaxWorkerRows bounds the workers that are kept, those that are gone included.
	MaxWorkerRows = 20_000

	// MaxWorkerBytes bounds what a worker says of itself: its name, its namespaces and
	// its handlers together.
	MaxWorkerBytes = 64 << 10

	// MaxKeys bounds the API keys that are not revoked.
	MaxKeys = 1000

	// MaxSessions bounds the sessions of one subject. Of more the oldest ends.
	MaxSessions = 100

	// MaxSignIns bounds the browsers that are at the identity provider at the same
	// time. Of more the one that has been there for longest has to begin anew.
	MaxSignIns = 10_000

	// MaxEntryChanges bounds how often people change one investigation before they
	// end it.
	MaxEntryChanges = 1000

	// MaxCaseNotes bounds the notes of one case. What else people do to it has no bound:
	// it must always be possible to take a case.
	MaxCaseNotes = 1000

	// MaxEntriesByHand bounds the investigations that people open of one task.
	MaxEntriesByHand = 100

	// MaxRejectedReports bounds the late and foreign reports of one step that are
	// recorded.
	MaxRejectedReports = 100

	// MaxCacheBytes bounds what a process remembers of templates, and of workers.
	MaxCacheBytes = 32 << 20

	// MaxOperationItems bounds the items of one operation.
	MaxOperationItems = 100_000

	// MaxOpenOperations bounds the operations that have not come to their end, and
	// MaxOpenOperationsPerNamespace those of them whose items are all in one namespace.
	MaxOpenOperations             = 100
	MaxOpenOperationsPerNamespace = MaxOpenOperations / 2

	// MaxOperationChunk bounds the items that are released in one transaction.
	MaxOperationChunk = 200

	// MaxRecreateChunk bounds the tasks that are recreated in one transaction.
	MaxRecreateChunk = 20

	// MaxOperationInFlight bounds the items of one operation that are released and
	// neither verified nor failed.
	MaxOperationInFlight = 10_000

	// MaxOperationCauses bounds the causes of the failures that an operation has
	// selected. Where there are more, no failure counts as one of a new cause.
	MaxOperationCauses = 1000

	// MaxTreeTasks bounds the tasks of a tree below the one that was asked for.
	MaxTreeTasks = 200

	// MaxTreeChildren bounds the children of one task in a tree.
	MaxTreeChildren = 20

	// MaxMapItems bounds the elements of the list of a map step.
	MaxMapItems = 10_000

	// MaxMapBytes bounds the list of a map step, and MaxDocumentBytes each element of it.
	MaxMapBytes = 4 << 20

	// MaxCheckpointBytes bounds the checkpoint of a step, so that a claim of a thousand steps can
	// have them all in memory.
	MaxCheckpointBytes = 16 << 10

	// MaxFailureBytes bounds what is kept of the context of a failure.
	MaxFailureBytes = 64 << 10
)

// InputTooLarge is the failure type of a step whose inputs are larger than any
// worker can be given.
const InputTooLarge = "input_too_large"

// Bounds are how many things callers can make; zero means the default. What is there when a
// bound is lowered stays.
type Bounds struct {
	Namespaces int // that have a template
	Templates  int // of a namespace, by name
	Versions   int // of a template
	Handlers   int // that the templates of a namespace name
	Workers    int // of a namespace that are alive
}

// DefaultBounds returns the bounds where none are configured.
func DefaultBounds() Bounds {
	return Bounds{Namespaces: 1000, Templates: 1000, Versions: 1000, Handlers: 1000, Workers: 1000}
}

// Complete returns the bounds with the defaults of those that are zero.
func (b Bounds) Complete() Bounds {
	d := DefaultBounds()
	return Bounds{
		Namespaces: cmp.Or(b.Namespaces, d.Namespaces), Templates: cmp.Or(b.Templates, d.Templates), Versions: cmp.Or(b.Versions, d.Versions),
		Handlers: cmp.Or(b.Handlers, d.Handlers), Workers: cmp.Or(b.Workers, d.Workers),
	}
}
