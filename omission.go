package tasker

// An OmittedDocument stands in a list for a document that would make the list larger
// than an answer may be.
type OmittedDocument struct {
	Omitted     bool   `json:"omitted"`      // true
	StoredBytes int    `json:"stored_bytes"` // in the database, compressed
	ReadAt      string `json:"read_at"`      // path of the API that has it whole
}
