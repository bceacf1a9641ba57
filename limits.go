package tasker

// The byte budget: every document, answer and request has a bound, and all of
// them are stated here and in docs/limits.md, which a test compares.
//
// The size of a document is the size it has when it is read back, not the size it
// had when it was sent: the database stores JSON in a form of its own, writes a
// space after every colon and comma, and spells numbers out, so that 1e308 has 309
// digits.
const (
	// MaxDocumentBytes bounds the context of a task, the result of a step and
	// each metadata document.
	MaxDocumentBytes = 1 << 20

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

	// MaxSnapshotBytes bounds the snapshot of an investigation. What does not fit
	// is replaced by its size, its digest, and where it can be read.
	MaxSnapshotBytes = 4 << 20

	// MaxFailureBytes bounds what is kept of the context of a failure.
	MaxFailureBytes = 64 << 10
)

// InputTooLarge is the failure type of a step whose inputs are larger than any
// worker can be given.
const InputTooLarge = "input_too_large"
